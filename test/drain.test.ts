import { once } from 'node:events'
import { Agent } from 'node:http'
import { connect } from 'node:net'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { call, yaml } from './helpers/gateway.ts'
import { serving, type ServingProcess } from './helpers/process.ts'
import { type RedisServer, startRedis } from './helpers/redis.ts'
import { startUpstream, type TestUpstream } from './helpers/upstream.ts'
import { until } from './helpers/wait.ts'

let data: TestUpstream
let redis: RedisServer
let gateway: ServingProcess | undefined
beforeAll(async () => {
  data = await startUpstream((_, response) => void setTimeout(() => response.end('{}'), 20))
  redis = await startRedis()
})
afterAll(async () => {
  await data.close()
  await redis.close()
})
afterEach(async () => {
  gateway?.kill()
  await gateway?.ended()
})

/** What a load balancer does that has not seen the failing readiness yet: it sends on, and reopens what was closed. */
async function balance(port: number, agent: Agent, isReady: () => boolean): Promise<unknown[]> {
  const outcomes: unknown[] = []
  for (let late = 0; late < LATE;) {
    if (!isReady()) late++
    const { status } = await call(port, { path: '/oidc/x', agent }).catch((error: NodeJS.ErrnoException) => ({
      status: error.code,
    }))
    outcomes.push(status)
  }
  return outcomes
}
/** Requests of each of its senders that come while readiness fails already. */
const LATE = 5

it.each([1, 2])(
  'requests that come while readiness already fails are served, on old sockets and new: workers %i',
  async (workers) => {
    const text = yaml({
      data: data.url,
      store: `{ redis: { url: "${redis.url}" } }`,
      more: 'drainTimeout: 12s',
    })
    gateway = await serving(text, ['--workers', String(workers)])
    const { port, adminPort } = gateway
    const agents = Array.from({ length: 8 }, (_, i) => new Agent({ keepAlive: i % 2 === 0, maxSockets: 1 }))
    let ready = true
    const balanced = agents.map((agent) => balance(port, agent, () => ready))
    gateway.kill('SIGTERM')
    await until('readiness fails', async () => (await call(adminPort, { path: '/readyz' })).status === 503)
    ready = false
    const outcomes = (await Promise.all(balanced)).flat()
    expect(new Set(outcomes)).toEqual(new Set([200]))
    for (const agent of agents) agent.destroy()
    expect(await gateway.ended()).toBe(0)
    expect(gateway.lines().filter(({ msg }) => msg === 'request')).toHaveLength(outcomes.length)
  },
)

it('sockets on which nobody has said a word do not hold the end up', async () => {
  gateway = await serving(yaml({ data: data.url, more: 'drainTimeout: 60s' }))
  const quiet = connect(gateway.port, '127.0.0.1')
  await once(quiet, 'connect')
  const ended = once(quiet, 'close')
  quiet.on('error', () => {}).resume()
  gateway.kill('SIGINT')
  expect(await gateway.ended()).toBe(0)
  await ended
  expect(gateway.stdout()).not.toContain('cut')
})
