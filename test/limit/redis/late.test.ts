import { afterEach, expect, it } from 'vitest'
import type { Quota } from '../../../src/limit/quota.ts'
import { ServerClocks } from '../../../src/limit/redis/server-clocks.ts'
import { createRedisStore } from '../../../src/limit/redis/store.ts'
import { startRedis } from '../../helpers/redis.ts'

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

it('does not charge calls that a stalled Redis reads after their timeout', async () => {
  const server = await startRedis()
  const store = createRedisStore({ topology: { url: server.url }, prefix: 'late', timeoutMs: 200 })
  closers.push(server.close, () => store.close())
  await store.connect()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(19)

  server.freeze()
  const late = await Promise.allSettled(Array.from({ length: 10 }, async () => store.charge([quota])))
  server.thaw()
  for (const call of late) {
    expect(call).toMatchObject({
      status: 'rejected',
      reason: { message: 'No answer within 200 ms.' },
    })
  }
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(18)
})

it('repeats the script call if the clock of the server was set, and admits the call', async () => {
  const server = await startRedis()
  const options = { topology: { url: server.url }, prefix: 'late', timeoutMs: 200 }
  // The server's clock is an hour slow until the key is set.
  const edit = (script: string): string =>
    script.replace(
      "call('TIME')",
      "{ call('TIME')[1] - (call('EXISTS', 'late:{acme}:set') == 1 and 0 or 3600), 0 }",
    )
  const store = createRedisStore({ ...options, edit })
  closers.push(server.close, () => store.close())
  await store.connect()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(19)
  await server.command('SET', 'late:{acme}:set', '1')
  expect((await store.charge([quota])).admitted).toBe(true)
})

it('narrows the estimate of a clock with each answer, and replaces it if an answer contradicts it', () => {
  const clocks = new ServerClocks()
  const after = (nowMs: number) =>
    (['earliest', 'latest'] as const).map((bound) => clocks.at('a', nowMs + 100, bound))
  expect(after(1000)).toEqual([undefined, undefined])
  // The server's clock showed 5 s between 1000 and 1010 ms of the local clock.
  clocks.learn('a', 1000, 1010, 5_000_000)
  expect(after(2000)).toEqual([6_090_000, 6_100_000])
  clocks.learn('a', 2000, 2001, 6_000_000)
  expect(after(2000)).toEqual([6_099_000, 6_100_000])
  // A slow answer gives a wider interval, which adds nothing.
  clocks.learn('a', 3000, 3085, 7_000_000)
  expect(after(3000)).toEqual([7_099_000, 7_100_000])
  // The first answer allowed as much.
  expect(clocks.latestEver('a', 3100)).toBe(7_100_000)
  // The clock is set back, then forward.
  clocks.learn('a', 4000, 4001, 2_000_000)
  expect(after(4000)).toEqual([2_099_000, 2_100_000])
  clocks.learn('a', 4000, 4100, 9_000_000)
  expect(after(4000)).toEqual([9_000_000, 9_100_000])
  clocks.learn('a', 4200, 4201, 9_190_000)
  expect(after(4200)).toEqual([9_289_000, 9_290_000])
  expect(clocks.latestEver('a', 4300)).toBe(9_300_000)
})

it('does not charge a call that times out after a slow answer', async () => {
  const server = await startRedis()
  const store = createRedisStore({ topology: { url: server.url }, prefix: 'late', timeoutMs: 400 })
  closers.push(server.close, () => store.close())
  await store.connect()
  server.freeze()
  const slow = store.charge([quota])
  await pause(300)
  server.thaw()
  expect((await slow).allowances[0]!.remaining).toBe(19)

  server.freeze()
  const late = Promise.resolve(store.charge([quota]))
  await expect(late).rejects.toThrow('No answer within 400 ms.')
  server.thaw()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(18)
})

it('does not charge a call that times out before the first answer of a server', async () => {
  const server = await startRedis()
  const store = createRedisStore({ topology: { url: server.url }, prefix: 'late', timeoutMs: 200 })
  closers.push(server.close, () => store.close())
  await store.connect()
  server.freeze()
  await expect(store.charge([quota])).rejects.toThrow('No answer within 200 ms.')
  server.thaw()
  expect((await store.charge([quota])).allowances[0]!.remaining).toBe(19)
})

it('does not fail a probe with the calls whose timeout it follows', async () => {
  const server = await startRedis()
  const store = createRedisStore({ topology: { url: server.url }, prefix: 'late', timeoutMs: 1000 })
  closers.push(server.close, () => store.close())
  await store.connect()
  let probed: Promise<void> | undefined
  store.listen((address, error) => {
    if (error === undefined) return
    server.thaw()
    probed ??= store.probe(address)
  })
  server.freeze()
  await expect(store.charge([quota])).rejects.toThrow('No answer within 1000 ms.')
  await expect(probed).resolves.toBeUndefined()
})
