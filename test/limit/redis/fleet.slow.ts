import { afterAll, expect, it } from 'vitest'
import { type FallbackStore, withFallback } from '../../../src/limit/fallback/store.ts'
import { createRedisStore } from '../../../src/limit/redis/store.ts'
import { REDIS_CERT, startRedis } from '../../helpers/redis.ts'
import { startSlowTls } from '../../helpers/slow-tls.ts'
import { until } from '../../helpers/wait.ts'

const FLEET = Number(process.env['FLEET'] ?? 100)
/** The handshakes of the fleet take longer than the timeout of a first attempt to connect. */
const HANDSHAKE_MS = Number(process.env['HANDSHAKE_MS'] ?? 15)

const stores: FallbackStore[] = []
afterAll(async () => void (await Promise.all(stores.map((store) => store.close()))))

it('finds Redis again after it stalled, and does not keep it busy with handshakes', async () => {
  const server = await startRedis()
  const front = await startSlowTls(server.url, REDIS_CERT, HANDSHAKE_MS)
  const tls = { ca: REDIS_CERT.cert }
  for (let i = 0; i < FLEET; i++) {
    const redis = createRedisStore({ topology: { url: front.url }, tls, prefix: 't', timeoutMs: 100 })
    expect(await redis.connect()).toBe(true)
    stores.push(withFallback(redis, { onOutage: 'local' }))
  }
  const withRedis = () => stores.filter((store) => store.mode() === 'store').length
  const before = front.handshakes()
  front.stall(1500)
  await until('every gateway has lost Redis', () => withRedis() === 0)
  await until('every gateway has found Redis', () => withRedis() === FLEET, 60_000)
  expect(front.handshakes() - before).toBeLessThan(10 * FLEET)
})
