import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { call, type Call, type Got, startLogging, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const ZIPPED = gzipSync('x'.repeat(5000))
const ROUTES = [
  { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
  { match: 'GET /v3/rate-limits', respond: 'limits', authenticate: 'bearer' },
  { match: '/busy', upstream: 'data', authenticate: 'bearer', limits: ['busy'] },
  { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]

const settings = () => ({
  data: upstream.url,
  limits: {
    requests: { per: ['client'], limit: 1, window: '1m' },
    busy: { per: ['client'], limit: { claim: 'plan', default: 0 }, window: '1m', refusal: { status: 529 } },
  },
  routes: ROUTES,
  more: { drainTimeout: '500ms' },
})
const upstream = await startUpstream((request, response) => {
  if (request.url === '/oidc/zipped') response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(ZIPPED)
  else if (request.url === '/oidc/parts') {
    response.write('first')
    setImmediate(() => response.end('second'))
  } else response.end('hello')
})
const gateway = await startLogging(settings())

let ids = 0
/** Sends a request. Returns the response and its access-log line. */
async function logged(options: Call): Promise<{ got: Got; line: Record<string, unknown> }> {
  const id = `call-${++ids}`
  const got = await call(gateway.port, { ...options, headers: { ...options.headers, 'X-Request-Id': id } })
  const own = () => gateway.lines().find(({ requestId }) => requestId === id)
  await until('the line', () => own() !== undefined)
  return { got, line: own()! }
}

describe('a limit with a status of its own and a value from the token', () => {
  it('logs a refusal like a 429, and a claim without a value once a minute, without what it says', async () => {
    for (let i = 0; i < 2; i++) {
      const { line } = await logged({ path: '/busy', token: await token('acme', { plan: 'unheard-of' }) })
      expect(line).toMatchObject({ level: 'info', status: 529, decision: 'refused', limit: 'busy' })
      expect(line).not.toHaveProperty('code')
    }
    const warnings = gateway.lines().filter(({ msg }) => String(msg).startsWith('claim of a limit'))
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toMatchObject({ level: 'warn', limit: 'busy', claim: 'plan' })
    expect(JSON.stringify(warnings)).not.toContain('unheard-of')
  })
})

describe('the bytes of a line', () => {
  it.each([
    ['a response', { path: '/oidc/x' }, 5],
    ['a response as it was sent, compressed', { path: '/oidc/zipped' }, ZIPPED.length],
    ['a response in chunks, without their framing', { path: '/oidc/parts' }, 11],
    ['a response to HEAD', { path: '/oidc/x', method: 'HEAD' }, 0],
    ['a refusal to HEAD', { path: '/x', method: 'HEAD' }, 0],
  ])('the bytes of a line are those of %s', async (_, options, bytes) => {
    expect((await logged(options)).line).toMatchObject({ bytes })
  })

  it('the bytes of a line are those of the gateway’s own responses', async () => {
    const refused = await logged({ path: '/x' })
    const limits = await logged({ path: '/v3/rate-limits', token: await token('acme') })
    for (const { got, line } of [refused, limits])
      expect(line['bytes']).toBe(Number(got.headers['content-length']))
  })
})

it('with log.refusals: sampled, refusals from memory have few lines, which count them all, also at shutdown', async () => {
  const sampled = await startLogging({
    ...settings(),
    more: { ...settings().more, log: { refusals: 'sampled' } },
  })
  for (const client of ['one', 'two']) {
    const mine = await token(client)
    for (let i = 0; i < 40; i++) await call(sampled.port, { path: '/v3/x', token: mine })
  }
  await sampled.close()
  const lines = sampled.lines().filter(({ msg }) => msg === 'request')
  expect(lines.length).toBeLessThan(40)
  for (const client of ['one', 'two']) {
    const own = lines.filter((line) => line['client'] === client)
    const counts: number[] = own.map(({ omitted = 0 }) => 1 + (omitted as number))
    expect(counts.reduce((sum, count) => sum + count)).toBe(40)
  }
  for (const { omitted, ...line } of lines)
    expect(line).toMatchObject(omitted === undefined ? { msg: 'request' } : { decision: 'refused' })
})
