import { expect, it } from 'vitest'
import { call, token, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/**
 * A million callers, each with its own counter. Most are addresses; every fifth is a client with its own token, whose
 * second call is refused.
 */
const CALLERS = 1_000_000
/** Callers of the warm-up, with as many clients as cached tokens and refusals. */
const FIRST_CALLERS = 60_000
const AT_ONCE = 50
const WINDOW_MS = 2000

const redis = await startRedis()
const data = await startUpstream(undefined, (_, response) => void response.end('{}'))
const gateway = await serving(
  yaml({
    data: data.url,
    store: { redis: { url: redis.url }, timeout: '10s', onOutage: 'deny' },
    trustedProxies: ['127.0.0.0/8'],
    limits: {
      addresses: { per: ['ip'], limit: 2, window: `${WINDOW_MS}ms` },
      clients: { per: ['client'], limit: 1, window: `${WINDOW_MS}ms` },
    },
    routes: [
      { match: '/client', upstream: 'data', authenticate: 'bearer', limits: ['clients'] },
      { match: '/*', upstream: 'data', authenticate: 'none', limits: ['addresses'] },
    ],
  }),
)
// Do not keep a million log lines.
gateway.child.stdout!.removeAllListeners('data').resume()

const redisBytes = async () =>
  Number(/^used_memory:(\d+)/m.exec(String(await redis.command('INFO', 'memory')))![1])
const gatewayBytes = async () =>
  Number(
    /^process_resident_memory_bytes (\d+)/m.exec(
      (await call(gateway.adminPort, { path: '/metrics' })).body,
    )![1],
  )
const address = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`

async function addressCalls(i: number): Promise<void> {
  const { status } = await call(gateway.port, { headers: { 'X-Forwarded-For': address(i) } })
  if (status !== 200) throw new Error(`a first call was answered ${status}`)
}

/** Returns the number of keys in Redis, except those about gateways. */
async function counters(): Promise<number> {
  const own = await Promise.all(
    ['~gateways', '~since', '~seen', '~watched', '~summaries'].map((name) =>
      redis.command('EXISTS', `sluice:{}:${name}`),
    ),
  )
  return own.reduce<number>((rest, count) => rest - Number(count), Number(await redis.command('DBSIZE')))
}

async function clientCalls(i: number): Promise<void> {
  const own = { path: '/client', token: await token(`client-${i}`) }
  const sentAt = performance.now()
  const { status } = await call(gateway.port, own)
  if (status !== 200) throw new Error(`the first call of a client was answered ${status}`)
  const again = await call(gateway.port, own)
  if (again.status !== 429 && performance.now() - sentAt < WINDOW_MS)
    throw new Error(`the second call of a client was answered ${again.status}`)
}

async function callers(from: number, to: number): Promise<void> {
  let next = from
  const one = async (): Promise<void> => {
    while (next < to) {
      const i = next++
      await (i % 5 === 0 ? clientCalls(i) : addressCalls(i))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, one))
}

it('memory of gateway and Redis returns to its initial size', async () => {
  await callers(0, FIRST_CALLERS)
  await until('the first counters are gone', async () => (await counters()) === 0)
  const before = { redis: await redisBytes(), gateway: await gatewayBytes() }
  const startedAt = performance.now()
  await callers(FIRST_CALLERS, FIRST_CALLERS + CALLERS)
  const seconds = (performance.now() - startedAt) / 1000
  await until('all counters are gone', async () => (await counters()) === 0, 60_000)
  await until('Redis has its memory back', async () => (await redisBytes()) < before.redis + 2 ** 20, 30_000)
  // The heap may vary, but does not grow with the callers: 100 bytes for each of a million would be 100 MB.
  const after = { redis: await redisBytes(), gateway: await gatewayBytes() }
  const mb = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MB`
  // oxlint-disable-next-line no-console
  console.log(
    `${CALLERS} callers in ${seconds.toFixed(0)} s: Redis ${mb(before.redis)} before, ${mb(after.redis)} after; gateway ${mb(before.gateway)} before, ${mb(after.gateway)} after`,
  )
  expect(after.gateway - before.gateway).toBeLessThan(60 * 2 ** 20)
}, 3_600_000)
