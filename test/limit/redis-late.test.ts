import { afterEach, expect, it } from 'vitest'
import type { Quota } from '../../src/limit/limit.ts'
import { createRedisClocks } from '../../src/limit/redis-clocks.ts'
import { RedisStore } from '../../src/limit/redis-store.ts'
import { startRedis } from '../helpers/redis.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

const quota: Quota = {
  name: 'requests',
  key: 'late:{acme}:requests',
  limit: 20,
  windowMs: 60_000,
  shadow: false,
}
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

it('what a stalled Redis reads after the calls were given up is not charged', async () => {
  const server = await startRedis()
  const store = new RedisStore({ topology: { url: server.url }, prefix: 'late', givenUpAfterMs: 200 })
  closers.push(server.close, () => store.close())
  await store.connect()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(19)

  server.freeze()
  const late = Array.from({ length: 10 }, () => store.charge([quota]))
  await pause(500)
  server.thaw()
  for (const one of await Promise.allSettled(late)) {
    expect(one).toMatchObject({
      status: 'rejected',
      reason: { message: expect.stringContaining('given up') },
    })
  }
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(18)
})

it('a clock that was set costs one more question, and no call', async () => {
  const server = await startRedis()
  const options = { topology: { url: server.url }, prefix: 'late', givenUpAfterMs: 200 }
  // As if the server's clock had stood an hour ago when it was last seen.
  const script = (await import('../../src/limit/redis-store.ts')).CHARGE_SCRIPT.replace(
    "call('TIME')",
    "{ call('TIME')[1] - (call('EXISTS', 'late:{acme}:set') == 1 and 0 or 3600), 0 }",
  )
  const store = new RedisStore({ ...options, script })
  closers.push(server.close, () => store.close())
  await store.connect()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(19)
  await server.command('SET', 'late:{acme}:set', '1')
  expect((await store.charge([quota])).admitted).toBe(true)
})

it('a clock is known from its latest answer, and unknown before the first', () => {
  const clocks = createRedisClocks()
  expect(clocks.after('a', 1000, 100)).toBe(0)
  clocks.learn('a', 1000, 5_000_000)
  expect(clocks.after('a', 2000, 100)).toBe(6_100_000)
  clocks.learn('a', 2000, 9_000_000)
  expect(clocks.after('a', 2000, 100)).toBe(9_100_000)
  expect(clocks.after('b', 2000, 100)).toBe(0)
})
