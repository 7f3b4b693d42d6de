import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { call, type Got, type Settings, token, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Gateways in separate processes, with their counters in one real Redis. */

const redis = await startRedis()
const data = await startUpstream()

/** Long timeouts, so that a busy machine does not cause an outage. */
const patiently = () => ({ store: `{ redis: { url: "${redis.url}" }, timeout: 10s }`, timeout: '20s' })

const gateway = (settings: Partial<Settings> = {}, env: Record<string, string> = {}) =>
  serving(
    yaml({ data: data.url, store: `{ redis: { url: "${redis.url}" }, onOutage: deny }`, ...settings }),
    [],
    env,
  )

let clients = 0
const newClient = () => `client-${process.pid}-${++clients}`
const burst = (ports: number[], mine: string, count: number): Promise<Got[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => call(ports[i % ports.length]!, { token: mine })))
const admitted = (answers: Got[]) => answers.filter(({ status }) => status === 200).length

describe('exact for all instances together', () => {
  it('two gateways on one Redis together admit 1000, although the clock of one differs by a second', async () => {
    const skewed = fileURLToPath(new URL('../helpers/skewed-clock.mjs', import.meta.url))
    const one = await gateway(patiently())
    const two = await gateway(patiently(), { NODE_OPTIONS: `--import ${skewed}`, SKEW_MS: '1000' })
    const mine = await token(newClient())
    const answers = await burst([one.port, two.port], mine, 1300)
    expect(admitted(answers)).toBe(1000)
    const resets = new Set(
      answers.filter(({ status }) => status === 429).map(({ headers }) => headers['x-ratelimit-reset']),
    )
    // The instant is of Redis's clock at both gateways.
    expect(resets.size).toBe(1)
  })

  it('a refused sync is not charged to the client, and a client at its limit does not affect others', async () => {
    const { port } = await gateway({ ...patiently(), limit: 5, syncWindow: '1m' })
    const mine = await token(newClient())
    const sync = { method: 'POST', path: '/sync/a:b', token: mine }
    expect((await call(port, sync)).status).toBe(200)
    for (const path of ['/sync/a%3Ab', '/Sync/a:b/', '/v3/sync/a:b']) {
      expect((await call(port, { ...sync, path })).headers['x-ratelimit-limit']).toBe('1')
    }
    expect((await call(port, { token: mine })).headers['x-ratelimit-remaining']).toBe('3')
    await burst([port], mine, 3)
    expect((await call(port, { token: mine })).status).toBe(429)
    expect((await call(port, { token: await token(newClient()) })).status).toBe(200)
    expect((await call(port, { method: 'POST', path: '/oidc/request', body: 'a=b' })).status).toBe(200)
    expect((await call(port, { path: '/oidc/.well-known/openid-configuration' })).status).toBe(200)
  })
})

describe('while Redis is down', () => {
  it('starts without it, with a warning, and decides once Redis is up', async () => {
    await redis.kill()
    const { port, adminPort, lines } = await gateway()
    expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
    const mine = await token(newClient())
    expect((await call(port, { token: mine })).status).toBe(503)
    await until('a warning', () => lines().some(({ level }) => level === 'warn'))
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 0\n')
    // Under `deny` it would refuse all requests of a load balancer.
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(503)
    await redis.start()
    await until('calls are decided', async () => (await call(port, { token: mine })).status === 200)
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 1\n')
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(200)
  })
})
