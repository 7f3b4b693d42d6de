import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { call, type Got, token, yaml } from '../helpers/gateway.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Gateways as processes of their own, with their counters in one real Redis. */

let redis: RedisServer
let data: TestUpstream
beforeAll(async () => {
  redis = await startRedis()
  data = await startUpstream()
})
afterAll(async () => {
  await data.close()
  await redis.close()
})

const gateways: ServingProcess[] = []
afterEach(() => {
  for (const gateway of gateways.splice(0)) gateway.kill()
})
/** Without an outage to see, Redis is waited for as long as a busy machine may take. */
const patiently = () => ({ store: `{ redis: { url: "${redis.url}" }, timeout: 10s }` })

async function gateway(settings: Partial<Parameters<typeof yaml>[0]> = {}, env: Record<string, string> = {}) {
  const text = yaml({
    data: data.url,
    store: `{ redis: { url: "${redis.url}" }, onOutage: deny }`,
    ...settings,
  })
  const started = await serving(text, [], env)
  gateways.push(started)
  return started
}

let clients = 0
const newClient = () => `client-${process.pid}-${++clients}`
const burst = (ports: number[], mine: string, count: number): Promise<Got[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => call(ports[i % ports.length]!, { token: mine })))
const admitted = (answers: Got[]) => answers.filter(({ status }) => status === 200).length

describe('exact, for every instance together', () => {
  it('admits 1000 of a burst of 1001, and who waits Retry-After is admitted', async () => {
    const { port } = await gateway({ ...patiently(), window: '3s' })
    const mine = await token(newClient())
    const started = performance.now()
    const answers = await burst([port], mine, 1001)
    // On a machine so slow that the window moved on meanwhile, more may rightly pass.
    if (performance.now() - started < 3000) expect(admitted(answers)).toBe(1000)
    const refused = answers.find(({ status }) => status === 429)
    if (refused === undefined) return
    const seconds = Number(refused.headers['retry-after'])
    expect(seconds).toBeGreaterThanOrEqual(1)
    expect(refused.headers).toMatchObject({ 'x-ratelimit-limit': '1000', 'x-ratelimit-remaining': '0' })
    expect(refused.json).toMatchObject({ retryAfterSecs: seconds, 'violated-policies': ['requests'] })
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
    expect((await call(port, { token: mine })).status).toBe(200)
  })

  it('two gateways on one Redis together admit 1000, though the clock of one is wrong by a second', async () => {
    const skewed = fileURLToPath(new URL('../helpers/skewed-clock.mjs', import.meta.url))
    const one = await gateway(patiently())
    const two = await gateway(patiently(), { NODE_OPTIONS: `--import ${skewed}`, SKEW_MS: '1000' })
    const mine = await token(newClient())
    const answers = await burst([one.port, two.port], mine, 1300)
    expect(admitted(answers)).toBe(1000)
    const resets = new Set(
      answers.filter(({ status }) => status === 429).map(({ headers }) => headers['x-ratelimit-reset']),
    )
    // The instant is Redis's, whichever gateway tells it.
    expect(resets.size).toBe(1)
  })

  it('a refused sync costs the client nothing, and a client at its limit costs the others nothing', async () => {
    const { port } = await gateway({ ...patiently(), limit: 5 })
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

describe('while Redis is out of reach', () => {
  const faults = {
    'is killed': { fault: () => redis.kill(), mend: () => redis.start() },
    'is stopped': { fault: async () => redis.freeze(), mend: async () => redis.thaw() },
  }
  it.each(Object.entries(faults))(
    'when it %s under load: 503 within a second, identity untouched, over within 5 s',
    async (_, { fault, mend }) => {
      const { port, lines } = await gateway()
      const mine = await token(newClient())
      expect((await call(port, { token: mine })).status).toBe(200)
      await fault()
      for (let i = 0; i < 10; i++) {
        const started = performance.now()
        const answers = await burst([port], mine, 20)
        expect(performance.now() - started).toBeLessThan(2000)
        for (const { status, headers, json } of answers) {
          expect(status).toBe(503)
          expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1)
          expect(headers).not.toHaveProperty('x-ratelimit-limit')
          expect(json).toMatchObject({ code: 'ServiceUnavailable', status: 503 })
        }
        expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
      }
      await mend()
      await until(
        'calls are decided again',
        async () => (await call(port, { token: mine })).status === 200,
        5000,
      )
      const denied = () => lines().filter(({ status }) => status === 503)
      await until('all that were refused are logged', () => denied().length >= 200)
      for (const line of denied()) {
        expect(line).toMatchObject({ mode: 'deny', code: 'ServiceUnavailable' })
        expect(line).not.toHaveProperty('decision')
      }
      await until('the end is told', () => lines().some(({ msg }) => msg === 'Redis decides again'))
      const warnings = lines().filter(({ level }) => level === 'warn')
      expect(warnings.filter(({ msg }) => !String(msg).includes('without its data'))).toHaveLength(1)
    },
  )

  it('starts without it, with a warning, and decides once it is there', async () => {
    await redis.kill()
    const { port, adminPort, lines } = await gateway()
    expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
    const mine = await token(newClient())
    expect((await call(port, { token: mine })).status).toBe(503)
    await until('a warning', () => lines().some(({ level }) => level === 'warn'))
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 0\n')
    // Under `deny` it would refuse whatever a load balancer sent.
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(503)
    await redis.start()
    await until('calls are decided', async () => (await call(port, { token: mine })).status === 200, 5000)
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 1\n')
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(200)
  })
})
