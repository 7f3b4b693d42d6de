import { startBrowser } from '../test/helpers/browser.ts'
import { call, token, yaml } from '../test/helpers/gateway.ts'
import { serving } from '../test/helpers/process.ts'
import { startUpstream } from '../test/helpers/upstream.ts'

/** Writes docs/console.png: the console of a gateway with some traffic. */
const FILE = 'docs/console.png'
/** Duration of the traffic: the time span of the chart. */
const TRAFFIC_MS = 300_000
const TICK_MS = 100
/** Calls per second. */
const CLIENTS = {
  acme: 14,
  bluebird: 9,
  'crisp-ledger': 6,
  'delta-pay': 4,
  evergreen: 2,
  'fjord-finance': 0.6,
  harbour: 0.3,
}

const upstream = await startUpstream()
const settings = yaml({
  data: upstream.url,
  limits: {
    requests: {
      per: ['client'],
      limit: 1000,
      window: '1m',
      changes: [{ announced: '2026-01-01T00:00:00Z', from: '2030-01-15T00:00:00Z', limit: 1200 }],
    },
    sync: { per: ['client', 'connection'], limit: 1, window: '5s' },
    trial: { per: ['client'], limit: 700, window: '1m', shadow: true },
  },
  routes: [
    { match: 'identity.example.com/*', upstream: 'identity', authenticate: 'none' },
    {
      match: 'POST /v3/sync/:connection',
      upstream: 'data',
      authenticate: 'bearer',
      limits: ['requests', 'sync'],
    },
    { match: '/v3/*', upstream: 'data', authenticate: 'bearer', limits: ['requests', 'trial'] },
  ],
  more: {
    plans: { free: { requests: 120 }, pro: { requests: 1000 } },
    clients: [
      { id: 'acme', plan: 'pro' },
      { id: 'bluebird', plan: 'pro' },
      { id: 'crisp-ledger', plan: 'pro' },
      { id: 'delta-pay', plan: 'free' },
    ],
  },
})
const gateway = await serving(settings)
const admin = `http://127.0.0.1:${gateway.adminPort}/`
await fetch(`${admin}limits/evergreen`, {
  method: 'PATCH',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ set: { requests: 1500 }, until: null, note: 'end of the quarter', by: 'Ana' }),
})
const browser = await startBrowser()
const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: 'light' })
await page.goto(admin)

const clients = await Promise.all(
  Object.entries(CLIENTS).map(async ([client, rate]) => ({ rate, token: await token(client) })),
)
const startedAt = performance.now()
const calls: Promise<unknown>[] = []
const timer = setInterval(() => {
  const phase = (performance.now() - startedAt) / 9000
  for (const [i, { rate, token }] of clients.entries()) {
    const wave = 1 + 0.5 * Math.sin(phase * (i + 2)) + 0.4 * (Math.random() - 0.5)
    const expected = (rate * wave * TICK_MS) / 1000
    const count = Math.floor(expected + Math.random())
    for (let k = 0; k < count; k++) calls.push(call(gateway.port, { path: '/v3/transactions', token }))
  }
}, TICK_MS)
await new Promise((resolve) => setTimeout(resolve, TRAFFIC_MS))
const { y, height } = (await page.locator('section', { has: page.locator('#callers') }).boundingBox())!
const clip = { x: 0, y: 0, width: 1280, height: y + height + 12 }
await page.screenshot({ path: FILE, fullPage: true, clip })
clearInterval(timer)
await Promise.all(calls)
await browser.close()
gateway.kill('SIGTERM')
await gateway.ended()
await upstream.close()
