import { connect } from 'node:net'
import { expect, it } from 'vitest'
import { startBrowser } from '../helpers/browser.ts'
import { startGateway } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const [hanging, browser] = await Promise.all([startUpstream(() => {}), startBrowser()])
const gateway = await startGateway({
  data: hanging.url,
  timeout: '60s',
  upstream: 'maxConnections: 1',
  limits: '',
  routes: 'routes: [{ match: "/*", upstream: data, authenticate: none }]',
})

it('the console shows that an upstream hangs while its callers wait, and its duration after they left', async () => {
  const callers = Array.from({ length: 3 }, () => connect(gateway.port, '127.0.0.1').on('error', () => {}))
  for (const socket of callers) socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  const page = await browser.newPage()
  await page.goto(`http://127.0.0.1:${gateway.adminPort}/`)
  const load = page.locator('#upstreams tbody tr', { hasText: 'data' }).locator('td').last()
  const text = async () => (await load.innerText()).trim()
  const hangs = /^1 socket, 2 in the queue, 1 waiting for a response, the oldest for \d+ m?s$/
  await until('the load', async () => hangs.test(await text()))
  for (const socket of callers) socket.destroy()
  await until('nobody waits', async () => /^\d sockets?$/.test(await text()))
  const duration = page.locator('#durations tbody tr', { hasText: 'Upstream data' })
  await until('the duration', async () => (await duration.count()) === 1)
  expect(await duration.locator('td').first().innerText()).toMatch(/^[1-3]$/)
})
