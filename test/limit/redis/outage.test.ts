import { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { connectTimeoutMs, createPace, reconnectDelayMs } from '../../../src/limit/redis/back-off.ts'
import { openClient } from '../../../src/limit/redis/client.ts'
import { hashSlot } from '../../../src/limit/redis/hash-slot.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import { type FallbackStore, withFallback } from '../../../src/limit/fallback/store.ts'
import type { RedisStoreOptions } from '../../../src/limit/redis/store-options.ts'
import { createRedisStore, type RedisStore } from '../../../src/limit/redis/store.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'
import { freePort } from '../../helpers/ports.ts'
import { type RedisServer, startCluster, startRedis, startSentinels } from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'
import { admitsAll, type FakeRedis, startFakeRedis } from '../../helpers/fake-redis.ts'

const TIMEOUT_MS = 200
/** Maximum time to recover, far below ioredis's own delays. */
const RECOVERED_MS = 5000

let open: { close(): Promise<void> }[] = []
afterEach(async () => {
  await Promise.all(open.map((resource) => resource.close()))
  open = []
})

function closing<T extends { close(): Promise<void> }>(resource: T): T {
  open.push(resource)
  return resource
}

let keys = 0
function quota(limit = 1_000_000): Quota {
  return { name: 'x', key: `t:{k${keys++}}:x`, limit, windowMs: 60_000, shadow: false }
}

async function storeOf(
  topology: RedisStoreOptions['topology'],
  timeoutMs = TIMEOUT_MS,
): Promise<{ store: FallbackStore; redis: RedisStore }> {
  const redis = createRedisStore({ topology, prefix: 't', timeoutMs })
  await redis.connect()
  const store = closing(withFallback(redis, { onOutage: 'local', probeEveryMs: 50 }))
  return { store, redis }
}

/** Charges a new key every few milliseconds; `stop` resolves with the calls that were not admitted. */
function load(store: FallbackStore, next: () => Quota = quota) {
  const state = { stopped: false }
  const modes = new Set<string>()
  const failures: unknown[] = []
  const under = new Set<Promise<void>>()
  const done = (async () => {
    while (!state.stopped) {
      const call = Promise.resolve(store.charge([next()]))
        .then(({ admitted, mode }) => {
          modes.add(mode)
          if (!admitted) failures.push('refused')
        })
        .catch((error: unknown) => void failures.push(error))
      under.add(call)
      void call.finally(() => under.delete(call))
      await new Promise((resolve) => void setTimeout(resolve, 2))
    }
    await Promise.all(under)
  })()
  return {
    modes,
    async stop() {
      state.stopped = true
      await done
      return failures
    },
  }
}

async function expectMode(store: FallbackStore, mode: string): Promise<void> {
  await until(`${mode} decides`, async () => (await store.charge([quota()])).mode === mode, RECOVERED_MS)
}

async function isMaster(server: RedisServer): Promise<boolean> {
  const info = await server.command('INFO', 'replication').catch(() => '')
  return String(info).includes('role:master')
}

describe('under load, with a Redis that', () => {
  let server: RedisServer
  beforeEach(async () => {
    server = closing(await startRedis())
  })

  test.each<[string, () => Promise<unknown> | void, () => Promise<unknown> | void]>([
    ['is killed and started again', () => server.kill(), () => server.start()],
    ['hangs and recovers', () => server.freeze(), () => server.thaw()],
    [
      'becomes a replica and a master again',
      () => server.command('REPLICAOF', '127.0.0.1', '1'),
      () => server.command('REPLICAOF', 'NO', 'ONE'),
    ],
    [
      'is full and has room again',
      () => server.command('CONFIG', 'SET', 'maxmemory', '1'),
      () => server.command('CONFIG', 'SET', 'maxmemory', '0'),
    ],
  ])('%s, answers every call, with the local counters during the outage', async (_, breakIt, mendIt) => {
    const { store } = await storeOf({ url: server.url })
    const calls = load(store)
    await until('Redis decides', () => calls.modes.has('store'))
    await breakIt()
    await until(
      'the local counters decide',
      () => store.mode() === 'local' && calls.modes.has('local'),
      RECOVERED_MS,
    )
    await mendIt()
    await until('Redis decides again', () => store.mode() === 'store', RECOVERED_MS)
    await expectMode(store, 'store')
    expect(await calls.stop()).toEqual([])
  })

  test('is full, is down from the first refused write until one hundredth of its memory is free', async () => {
    // A busy machine must not cause a timeout, which is another failure.
    const { store } = await storeOf({ url: server.url }, 20_000)
    const infoOf = async (section: string, pattern: RegExp) =>
      Number(pattern.exec(String(await server.command('INFO', section)))?.[1] ?? 0)
    const registrations = () => infoOf('commandstats', /^cmdstat_zadd:calls=(\d+)/m)
    // A hundredth of this is more than the buffers of connections.
    const fill = "for i = 1, 50 do redis.call('SET', 'filler' .. i, ('x'):rep(1000000)) end"
    await server.command('EVAL', fill, 0)
    expect((await store.charge([quota()])).mode).toBe('store')

    await server.command('CONFIG', 'SET', 'maxmemory', '1')
    expect((await store.charge([quota()])).mode).toBe('local')
    expect(store.mode()).toBe('local')

    const used = await infoOf('memory', /^used_memory:(\d+)/m)
    await server.command('CONFIG', 'SET', 'maxmemory', used + 200_000)
    const before = await registrations()
    await until('it was probed several times', async () => (await registrations()) > before + 3)
    expect(store.mode()).toBe('local')

    await server.command('CONFIG', 'SET', 'maxmemory', used + 2_000_000)
    await expectMode(store, 'store')
  })

  test('loses its scripts, Redis still decides every call', async () => {
    const { store } = await storeOf({ url: server.url })
    const calls = load(store)
    for (let i = 0; i < 10; i++) {
      await server.command('SCRIPT', 'FLUSH')
      expect((await store.charge([quota()])).mode).toBe('store')
    }
    expect(await calls.stop()).toEqual([])
    expect([...calls.modes]).toEqual(['store'])
  })

  test('hangs and recovers, writes back the calls that were counted locally', async () => {
    const { store, redis } = await storeOf({ url: server.url })
    const mine = quota(50)
    for (let i = 0; i < 20; i++) expect((await store.charge([mine])).mode).toBe('store')
    server.freeze()
    await expectMode(store, 'local')
    let local = 0
    while ((await store.charge([mine])).admitted) local++
    expect(local).toBe(30)
    server.thaw()
    await expectMode(store, 'store')
    await until('all calls are written back', async () => (await redis.peek([mine]))[0]!.remaining === 0)
    expect(await store.charge([mine])).toMatchObject({ admitted: false, mode: 'store' })
  })

  test('is lost twice, reports each loss once', async () => {
    let lost = 0
    const redis = closing(
      createRedisStore({ topology: { url: server.url }, prefix: 't', onLost: () => lost++ }),
    )
    expect(await redis.connect()).toBe(true)
    for (const times of [1, 2]) {
      await server.kill()
      await until('the loss is reported', () => lost === times)
      await expect(redis.charge([quota()])).rejects.toThrow('Redis is not connected')
      await server.start()
      await until('Redis decides', async () => (await redis.charge([quota()]).catch(() => {})) !== undefined)
      expect(lost).toBe(times)
    }
  })

  test('is unavailable at the start, decides as soon as it is available', async () => {
    await server.kill()
    const { store } = await storeOf({ url: server.url })
    await expectMode(store, 'local')
    await server.start()
    await expectMode(store, 'store')
  })

  test('answers while this process is busy, does not time out', async () => {
    const { store } = await storeOf({ url: server.url })
    await store.charge([quota()])
    server.freeze()
    const call = Promise.resolve(store.charge([quota()]))
    for (let i = 0; i < 2; i++) await new Promise((resolve) => void setImmediate(resolve))
    server.thaw()
    const end = performance.now() + 3 * TIMEOUT_MS
    while (performance.now() < end);
    expect((await call).mode).toBe('store')
  })
})

test('pauses before reconnecting double up to a second, half of it random', () => {
  for (const [failed, longest] of [50, 100, 200, 400, 800, 1000, 1000].entries()) {
    const pauses = Array.from({ length: 100 }, () => reconnectDelayMs(failed))
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(longest / 2)
    expect(Math.max(...pauses)).toBeLessThanOrEqual(longest)
    expect(new Set(pauses).size).toBeGreaterThan(50)
  }
  expect([0, 1, 2, 3, 4, 50].map(connectTimeoutMs)).toEqual([1000, 2000, 4000, 8000, 10_000, 10_000])
})

test('a connection that stays silent is replaced less and less often, each server by itself', () => {
  let nowMs = 0
  const mayReplace = createPace({ ...SYSTEM_CLOCK, now: () => nowMs })
  const replacedAt: number[] = []
  for (; nowMs <= 40_000; nowMs += 250) if (mayReplace('a', 1000)) replacedAt.push(nowMs)
  expect(replacedAt).toEqual([0, 1000, 3000, 7000, 15_000, 25_000, 35_000])
  expect(mayReplace('b', 1000)).toBe(true)
  nowMs += 30_000
  expect([mayReplace('a', 1000), mayReplace('a', 1000)]).toEqual([true, false])
  nowMs += 1000
  expect(mayReplace('a', 1000)).toBe(true)
})

test.each<[string, (url: string) => RedisStoreOptions['topology']]>([
  ['one Redis', (url) => ({ url })],
  ['a cluster', (url) => ({ cluster: [url] })],
])('while %s is not connected, a call fails within ten iterations of the event loop', async (_, topology) => {
  const url = `redis://127.0.0.1:${await freePort()}`
  const redis = closing(createRedisStore({ topology: topology(url), prefix: 't' }))
  await redis.connect()
  let failed = false
  redis.charge([quota()]).catch(() => void (failed = true))
  for (let i = 0; i < 10; i++) await new Promise((resolve) => void setImmediate(resolve))
  expect(failed).toBe(true)
})

describe('with a server that', () => {
  let fake: FakeRedis
  beforeEach(async () => {
    fake = closing(await startFakeRedis())
  })

  test.each<[string, string | undefined]>([
    ['accepts connections and never answers', undefined],
    ['is loading', '-LOADING Redis is loading the dataset in memory\r\n'],
    [
      'cannot save',
      '-MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk.\r\n',
    ],
    ['is part of a broken cluster', '-CLUSTERDOWN The cluster is down\r\n'],
    ['answers with another type', '+OK\r\n'],
    ['answers with null', '$-1\r\n'],
    ['answers with too few numbers', '*1\r\n:5\r\n'],
    ['answers with strings', `*5\r\n${'$1\r\nx\r\n'.repeat(5)}`],
    ['uses another protocol', 'HTTP/1.1 400 Bad Request\r\n\r\n'],
  ])('%s, the local counters decide until its answers are valid', async (_, reply) => {
    fake.answer(admitsAll)
    const { store } = await storeOf({ url: fake.url })
    expect((await store.charge([quota()])).mode).toBe('store')
    fake.answer(reply)
    const calls = load(store)
    await expectMode(store, 'local')
    fake.answer(admitsAll)
    await expectMode(store, 'store')
    expect(await calls.stop()).toEqual([])
  })

  test.each([
    ['strings', `*5\r\n${'$1\r\nx\r\n'.repeat(5)}`],
    ['a string among numbers', '*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n$1\r\n5\r\n'],
    ['a list among numbers', '*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n*0\r\n'],
    ['one number too many', `*6\r\n${':1\r\n'.repeat(6)}`],
  ])('answers %s instead of numbers, the decision fails', async (_, reply) => {
    fake.answer(admitsAll)
    const { redis } = await storeOf({ url: fake.url })
    fake.answer(reply)
    await expect(redis.charge([quota()])).rejects.toThrow('invalid reply to a script')
  })

  test('became a replica, reconnects, since its name may now resolve to another server', async () => {
    fake.answer(admitsAll)
    const { store } = await storeOf({ url: fake.url })
    const before = fake.connections()
    fake.answer("-READONLY You can't write against a read only replica.\r\n")
    expect(await store.charge([quota()])).toMatchObject({ mode: 'local' })
    await until('there is a new connection', () => fake.connections() > before)
  })

  test('refuses connections, the timeout of the next one doubles until one is accepted', async () => {
    const client = openClient({ topology: { url: fake.url } }, () => {})
    closing({ close: async () => client.close() })
    client.commands.on('error', () => {})
    const { options } = client.commands as Redis
    fake.answer(admitsAll)
    await client.connect()
    expect(options.connectTimeout).toBe(1000)
    await fake.close()
    for (const timeoutMs of [2000, 4000, 8000, 10_000])
      await until(`it is ${timeoutMs} ms`, () => options.connectTimeout === timeoutMs)
    fake = closing(await startFakeRedis(Number(new URL(fake.url).port)))
    fake.answer(admitsAll)
    await until('it is connected', () => client.commands.status === 'ready')
    fake.drop()
    await until('it is 1000 ms', () => options.connectTimeout === 1000)
  })

  test('is silent, reconnects, and sends few requests', async () => {
    fake.answer(admitsAll)
    const { store } = await storeOf({ url: fake.url })
    const before = fake.connections()
    fake.answer(undefined)
    const calls = load(store)
    await until('there is a new connection', () => fake.connections() > before)
    await expectMode(store, 'local')
    const asked = fake.commands().length
    for (let i = 0; i < 200; i++) await store.charge([quota()])
    expect(fake.commands().length - asked).toBeLessThan(100)
    expect(await calls.stop()).toEqual([])
  })
})

describe('when a master is lost', () => {
  test('the new master of the sentinels decides', async () => {
    const sentinels = closing(await startSentinels())
    const { store } = await storeOf({ sentinels: sentinels.urls, name: sentinels.name })
    const calls = load(store)
    await until('Redis decides', () => calls.modes.has('store'))
    await sentinels.master.kill()
    await expectMode(store, 'local')
    await until('the replica is master', () => isMaster(sentinels.replica), 15_000)
    await expectMode(store, 'store')
    expect(await calls.stop()).toEqual([])
  })

  test('the connection is opened again if the only sentinel of the file is lost, too', async () => {
    const sentinels = closing(await startSentinels())
    const [first] = sentinels.urls
    const { store } = await storeOf({ sentinels: [first!], name: sentinels.name })
    const operator = new Redis(first!, { protocol: 2, retryStrategy: () => null })
    await operator.call('SHUTDOWN').catch(() => 'it ends without an answer')
    /** Returns the id of the connection of the store; undefined if there is none. */
    const connection = async () => {
      const all = String(await sentinels.master.command('CLIENT', 'LIST'))
      return /^id=(\d+) .*name=sluice /m.exec(all)?.[1]
    }
    const before = await connection()
    await sentinels.master.command('CLIENT', 'KILL', 'ID', before!)
    await until('there is another one', async () => {
      const now = await connection()
      return now !== undefined && now !== before
    })
    await expectMode(store, 'store')
  })

  test('by a failover that an operator requested, the new master decides', async () => {
    const sentinels = closing(await startSentinels())
    const { store } = await storeOf({ sentinels: sentinels.urls, name: sentinels.name })
    const calls = load(store)
    await until('Redis decides', () => calls.modes.has('store'))
    const operator = new Redis(sentinels.urls[0]!, { protocol: 2 })
    await operator.call('SENTINEL', 'FAILOVER', sentinels.name)
    operator.disconnect()
    await until('the replica is master', () => isMaster(sentinels.replica), 15_000)
    await until('the new master is charged', async () => {
      const one = quota()
      await store.charge([one])
      return (await sentinels.replica.command('EXISTS', one.key)) === 1
    })
    // Sentinel demotes it only after eight seconds.
    expect(await isMaster(sentinels.master)).toBe(true)
    expect(await calls.stop()).toEqual([])
  })

  test('its replica decides for its slots of a cluster, and the other masters are not affected', async () => {
    const cluster = closing(await startCluster(3, 1))
    const { store } = await storeOf({ cluster: cluster.urls })
    const lost = await cluster.masterOf(hashSlot('lost'))
    const kept: string[] = []
    for (let i = 0; kept.length < 5; i++) {
      const tag = `kept${i}`
      if ((await cluster.masterOf(hashSlot(tag))) !== lost) kept.push(tag)
    }
    const of = (tag: string): Quota => ({ ...quota(), key: `t:{${tag}}:${keys++}` })
    const inLost = () => of('lost')
    const onOthers = load(store, () => of(kept[keys % kept.length]!))
    const onLost = load(store, inLost)
    const decidesForLost = (mode: string, ms: number) =>
      until(
        `${mode} decides for the lost slots`,
        async () => (await store.charge([inLost()])).mode === mode,
        ms,
      )
    await decidesForLost('store', RECOVERED_MS)
    await lost.kill()
    await decidesForLost('local', RECOVERED_MS)
    await decidesForLost('store', 20_000)
    expect(await onLost.stop()).toEqual([])
    expect(await onOthers.stop()).toEqual([])
  })

  test('because it hangs, the other masters of a cluster decide without delay', async () => {
    const cluster = closing(await startCluster(3))
    const { store } = await storeOf({ cluster: cluster.urls })
    const hung = await cluster.masterOf(hashSlot('hung'))
    let other = 0
    while ((await cluster.masterOf(hashSlot(`other${other}`))) === hung) other++
    const charge = async (tag: string) => await store.charge([{ ...quota(), key: `t:{${tag}}:x` }])
    expect((await charge('hung')).mode).toBe('store')
    hung.freeze()
    await until(
      'the local counters decide for the hung master',
      () => store.mode() === 'local' || charge('hung').then(() => false),
    )
    expect((await charge('hung')).mode).toBe('local')
    expect((await charge(`other${other}`)).mode).toBe('store')
    hung.thaw()
    await until('the hung master decides', async () => (await charge('hung')).mode === 'store', 15_000)
  })
})

describe('a Redis that returns with its data', () => {
  /** Creates a gateway, with the losses that it reports. */
  async function gatewayOf(url: string) {
    const emptied: unknown[] = []
    const outdated: (readonly [countedUntil: number, lostUntil: number])[] = []
    const store = createRedisStore({
      topology: { url },
      prefix: 't',
      onEmptied: (...range) => void emptied.push(range),
      onOutdated: (...range) => void outdated.push(range),
    })
    closing(store)
    await store.connect()
    return { store, emptied, outdated }
  }
  const timeOf = async (server: RedisServer): Promise<number> => {
    const [seconds, micros] = (await server.command('TIME')) as [string, string]
    return Number(seconds) * 1000 + Number(micros) / 1000
  }
  const connected = (store: RedisStore): Promise<unknown> =>
    until('it is connected', () =>
      store.probe('redis').then(
        () => true,
        () => false,
      ),
    )

  test('is reported if the data are old, by each gateway, also by one that the data do not have', async () => {
    const server = closing(await startRedis())
    const first = await gatewayOf(server.url)
    await first.store.probe('redis')
    const before = await timeOf(server)
    await server.command('SAVE')
    const second = await gatewayOf(server.url)
    await first.store.probe('redis')
    const after = await timeOf(server)
    // A gateway that knows nothing registers first.
    await server.kill()
    await server.start()
    await gatewayOf(server.url)
    for (const { store } of [first, second]) await connected(store)
    for (const { store } of [first, second]) await store.probe('redis')
    expect(first.outdated).toHaveLength(1)
    const [countedUntil, lostUntil] = first.outdated[0]!
    expect(countedUntil).toBeLessThanOrEqual(before)
    expect(countedUntil).toBeGreaterThan(before - 5000)
    expect(lostUntil).toBeGreaterThan(before)
    expect(lostUntil).toBeLessThanOrEqual(after)
    expect(second.outdated).toMatchObject([[expect.any(Number), expect.any(Number)]])
    expect([first.emptied, second.emptied]).toEqual([[], []])
  })

  test('is not reported if the data are complete, or empty, which is reported as such', async () => {
    const server = closing(await startRedis())
    const [first, second] = [await gatewayOf(server.url), await gatewayOf(server.url)]
    await second.store.probe('redis')
    await first.store.probe('redis')
    await server.command('SAVE')
    await server.kill()
    await server.start()
    for (const { store } of [second, first]) await connected(store)
    for (const { store } of [second, first]) await store.probe('redis')
    expect([first.outdated, second.outdated, first.emptied]).toEqual([[], [], []])
    await server.command('FLUSHALL')
    await first.store.probe('redis')
    expect(first.emptied).toHaveLength(1)
    expect(first.outdated).toEqual([])
  })

  const SECOND = 1e6
  const MINUTE = 60 * SECOND
  test.each([
    ['a gateway was removed by others, as it was suspended', [3 * MINUTE, 0, 3 * MINUTE - SECOND], undefined],
    ['an answer to a registration was lost', [4 * SECOND, 2 * SECOND, 3 * SECOND], undefined],
    ['the clock was set back', [-5 * SECOND, -6 * SECOND, -6 * SECOND], undefined],
    ['the data are an hour older', [10 * MINUTE, 0, -60 * MINUTE], -60 * MINUTE],
    ['another gateway has registered since', [5 * SECOND, -60 * SECOND, 4 * SECOND], -60 * SECOND],
    ['another gateway has registered since, and the data are an hour older', [5 * SECOND, 0, 4 * SECOND], 0],
  ])('is reported only if the data are old: %s', async (_, [now, own, any], countedUntil) => {
    const fake = closing(await startFakeRedis())
    const start = 1.7e15
    let numbers = [start, 1, 1, 0, 0]
    fake.answer(([name]) => {
      if (name === 'info') return '$0\r\n\r\n'
      if (!name!.startsWith('eval')) return '+OK\r\n'
      return `*6\r\n${[...numbers, 0].map((number) => `:${number}\r\n`).join('')}`
    })
    const { store, outdated } = await gatewayOf(fake.url)
    const at = (us: number) => (us === 0 ? 0 : start + us)
    numbers = [at(now!), 1, 1, at(own!), at(any!)]
    await store.probe('redis')
    const expected = countedUntil === undefined ? [] : [[at(countedUntil) / 1000, start / 1000]]
    expect(outdated).toEqual(expected)
  })
})
