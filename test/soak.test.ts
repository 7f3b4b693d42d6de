import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, yaml } from './helpers/gateway.ts'
import { serving, type ServingProcess } from './helpers/process.ts'
import { type RedisServer, startRedis } from './helpers/redis.ts'
import { startUpstream, type TestUpstream } from './helpers/upstream.ts'
import { until } from './helpers/wait.ts'

/** A million callers, each with a counter of its own (`npm run test:long`); in the suite a slice of that. */
const LONG = process.env['SLUICE_LONG'] === '1'
const CALLERS = LONG ? 1_000_000 : 5000
const AT_ONCE = 50

let redis: RedisServer
let data: TestUpstream
let gateway: ServingProcess
beforeAll(async () => {
  redis = await startRedis()
  data = await startUpstream(undefined, (_, response) => void response.end('{}'))
  gateway = await serving(
    yaml({
      data: data.url,
      store: `{ redis: { url: "${redis.url}" }, timeout: 10s, onOutage: deny }`,
      trustedProxies: '[127.0.0.0/8]',
      limits: 'limits: { callers: { per: [ip], limit: 2, window: 3s } }',
      routes: 'routes: [{ match: "/*", upstream: data, authenticate: none, limits: [callers] }]',
    }),
  )
  // A million log lines are not for keeping.
  gateway.child.stdout!.removeAllListeners('data').resume()
})
afterAll(async () => {
  gateway?.kill()
  await data.close()
  await redis.close()
})

const redisBytes = async () =>
  Number(/^used_memory:(\d+)/m.exec(String(await redis.command('INFO', 'memory')))![1])
const gatewayBytes = async () =>
  Number(
    /^process_resident_memory_bytes (\d+)/m.exec(
      (await call(gateway.adminPort, { path: '/metrics' })).body,
    )![1],
  )
const address = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`

async function callers(from: number, to: number): Promise<void> {
  let next = from
  const one = async (): Promise<void> => {
    while (next < to) {
      const { status } = await call(gateway.port, { headers: { 'X-Forwarded-For': address(next++) } })
      if (status !== 200) throw new Error(`a first call was answered ${status}`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, one))
}

it(
  'memory of gateway and Redis returns to where it began',
  async () => {
    await callers(0, 3000)
    await until('the first counters are gone', async () => (await redis.command('DBSIZE')) === 0)
    const before = { redis: await redisBytes(), gateway: await gatewayBytes() }
    const startedAt = performance.now()
    await callers(3000, 3000 + CALLERS)
    const seconds = (performance.now() - startedAt) / 1000
    await until('all counters are gone', async () => (await redis.command('DBSIZE')) === 0, 60_000)
    await until(
      'Redis has its memory back',
      async () => (await redisBytes()) < before.redis + 2 ** 20,
      30_000,
    )
    // A heap has room to breathe, but does not grow by the caller: a million at 100 bytes would be 100 MB.
    const after = { redis: await redisBytes(), gateway: await gatewayBytes() }
    if (LONG) {
      const mb = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MB`
      // oxlint-disable-next-line no-console
      console.log(
        `${CALLERS} callers in ${seconds.toFixed(0)} s: Redis ${mb(before.redis)} before, ${mb(after.redis)} after; gateway ${mb(before.gateway)} before, ${mb(after.gateway)} after`,
      )
    }
    expect(after.gateway - before.gateway).toBeLessThan(60 * 2 ** 20)
  },
  LONG ? 1_800_000 : 60_000,
)
