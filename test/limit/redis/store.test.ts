import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { hashSlot } from '../../../src/limit/redis/hash-slot.ts'
import { withFallback } from '../../../src/limit/fallback/store.ts'
import { createRedisStore, type RedisStore } from '../../../src/limit/redis/store.ts'
import { CHARGE_SCRIPT } from '../../../src/limit/redis/scripts.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import { type Charge, DamagedKeyError, type Merge, type Store } from '../../../src/limit/store.ts'
import { closeLater } from '../../helpers/closing.ts'
import type { SharedCluster, SharedRedis } from '../../helpers/redis.ts'
import { quickly } from '../../helpers/runs.ts'
import { sharedCluster, sharedRedis } from '../../helpers/shared-redis.ts'
import { until } from '../../helpers/wait.ts'
import { storeContract } from '../store-contract.ts'
import { redisSubject, throughLimiter } from '../subjects.ts'

/** Moves the slots of a log, so that the oldest has an index in the ring. */
const TURN = `
local raw, first = redis.call('GET', KEYS[1]), tonumber(ARGV[1])
local ring, at = string.sub(raw, 39), #raw - 38 - first * 13
redis.call('SETRANGE', KEYS[1], 4, struct.pack('>I4', first) .. string.sub(raw, 9, 38) .. string.sub(ring, at + 1) .. string.sub(ring, 1, at))`
/** Returns time and cumulative count of each slot of a log, the oldest first. */
const SLOTS = `
local raw, slots = redis.call('GET', KEYS[1]), {}
local capacity, first, held = struct.unpack('>I4I4I4', raw)
for i = 0, held - 1 do
  slots[2 * i + 1], slots[2 * i + 2] = struct.unpack('>I7I6', raw, 39 + (first + i) % capacity * 13)
end
return slots`

let server: SharedRedis
let cluster: SharedCluster
beforeAll(async () => {
  ;[server, cluster] = await Promise.all([sharedRedis(), sharedCluster()])
})

const single = () => redisSubject({ url: server.url }, (_, [name, ...args]) => server.command(name!, ...args))

storeContract('the Redis store', single, { runs: quickly(8, 48), atOnce: 8 })

storeContract('the Redis store through a limiter', async () => throughLimiter(await single()), {
  remembers: true,
  monotonic: true,
})

storeContract('the Redis store with a fallback', async () => {
  const subject = await single()
  const redis = subject.store as Store & RedisStore
  const { endLeases } = redis
  let ending: Promise<unknown> = Promise.resolve()
  redis.endLeases = (leases) => {
    const ended = endLeases(leases)
    ending = Promise.allSettled([ending, ended])
    return ended
  }
  const store = withFallback(redis, { onOutage: 'deny' })
  const { settle } = store
  // A settlement is sent when the one before it has been answered, which may be after a few iterations.
  store.settle = (charge, corrections) => {
    const settled = settle(charge, corrections)
    ending = Promise.allSettled([ending, settled])
    return settled
  }
  async function merged(): Promise<unknown> {
    await subject.merged!()
    // The fallback gathers the leases that end in an iteration of the event loop.
    await new Promise((resolve) => setImmediate(resolve))
    return ending
  }
  return { ...subject, store, merged }
})

storeContract('the Redis store on a cluster', async () => {
  const owners = new Map<number, SharedRedis>()
  return await redisSubject({ cluster: cluster.urls }, async (tag, [name, ...args]) => {
    const slot = hashSlot(tag)
    const owner = owners.get(slot) ?? (await cluster.masterOf(slot))
    owners.set(slot, owner)
    return await owner.command(name!, ...args)
  })
})

/** Lets a script count its calls in a key with the hash tag of its first key. */
const counting = (script: string): string =>
  `redis.call('INCR', 'calls:{' .. KEYS[#KEYS]:match('{(.-)}') .. '}')\n${script}`

describe('the Redis store', () => {
  let store: RedisStore
  beforeAll(async () => {
    store = createRedisStore({ topology: { url: server.url }, prefix: 'r' })
    await store.connect()
  })
  afterAll(() => store?.close())

  const quota = (name: string, limit: number, windowMs: number) => ({
    name,
    key: `r:{${name}}:x`,
    limit,
    windowMs,
    shadow: false,
  })

  test.concurrent.each([
    ['one call', 30, 1],
    ['more calls than a small log holds', 100, 30],
    ['calls that share slots', 5000, 30],
  ])('keeps a key only until its newest call leaves the window: %s', async (name, limit, calls) => {
    const windowMs = 1000
    const mine = quota(name, limit, windowMs)
    for (let i = 0; i < calls; i++) {
      await store.charge([mine])
      const ttl = Number(await server.command('PTTL', mine.key))
      expect(ttl).toBeGreaterThan(0)
      expect(ttl).toBeLessThanOrEqual(windowMs + 2)
    }
    await until(
      'half of the window has passed',
      async () => Number(await server.command('PTTL', mine.key)) < 500,
    )
    await store.charge([mine])
    expect(Number(await server.command('PTTL', mine.key))).toBeGreaterThan(500)
    await until('the key is gone', async () => (await server.command('EXISTS', mine.key)) === 0)
    expect((await store.peek([mine]))[0]).toMatchObject({ remaining: limit })
  })

  test('keeps idle clients small, and busy ones within 13 bytes a call', async () => {
    const mine = quota('size', 1000, 60_000)
    await store.charge([mine])
    expect(await server.command('STRLEN', mine.key)).toBeLessThan(100)
    await Promise.all(Array.from({ length: 1200 }, async () => store.charge([mine])))
    expect(await server.command('STRLEN', mine.key)).toBeLessThanOrEqual(13 * 1000 + 38)
    const quantised = quota('quantised', 1_000_000, 60_000)
    await Promise.all(Array.from({ length: 5000 }, async () => store.charge([quantised])))
    expect(await server.command('STRLEN', quantised.key)).toBeLessThanOrEqual(13 * 1002 + 38)
  })

  test('takes the memory in Redis that docs/sizing.md documents', async () => {
    const docs = readFileSync(new URL('../../../docs/sizing.md', import.meta.url), 'utf8')
    const [, calls, weights] = /^\| a client with ([\d, ]+) calls in its window \| ([^|]+) \|$/m.exec(docs)!
    const documented = weights!.split(', ').map((weight) => {
      const [count, unit] = weight.split(' ')
      return Number(count) * (unit === 'kB' ? 1000 : 1)
    })
    expect(documented).toHaveLength(6)
    for (const [i, count] of calls!.split(', ').map(Number).entries()) {
      const key = `sluice:{00000000-0000-4000-8000-${String(count).padStart(12, '0')}}:requests`
      const mine = { ...quota('requests', 1000, 60_000), key }
      // One by one, since simultaneous calls may share an instant.
      for (let j = 0; j < count; j++) await store.charge([mine])
      const bytes = Number(await server.command('MEMORY', 'USAGE', key))
      // Allocators round differently.
      expect(bytes / documented[i]!, `${count} calls: ${bytes} B`).toBeGreaterThan(0.85)
      expect(bytes / documented[i]!, `${count} calls: ${bytes} B`).toBeLessThan(1.15)
    }
    expect(docs).toContain(
      `50,000 × ${(documented[2]! / 1000).toFixed(1)} kB = ${Math.round(documented[2]! / 100) * 5} MB`,
    )
  })

  test('sends the decisions of one event-loop iteration in script calls of up to 24 decisions', async () => {
    const counted = createRedisStore({ topology: { url: server.url }, prefix: 'r', edit: counting })
    await counted.connect()
    const mine = quota('turn', 5, 1000)
    for (const [times, calls] of [
      [24, '1'],
      [100, '6'],
    ] as const) {
      await Promise.all(Array.from({ length: times }, async () => counted.charge([mine])))
      expect(await server.command('GET', 'calls:{turn}')).toBe(calls)
    }
    await counted.close()
  })

  test('sends the decisions of one event-loop iteration in one script call for each slot of a cluster', async () => {
    const topology = { cluster: cluster.urls }
    const counted = createRedisStore({ topology, prefix: 'r', edit: counting })
    await counted.connect()
    const charge = async (tag: string, times: number) => {
      const mine = quota(tag, 1000, 1000)
      await Promise.all(Array.from({ length: times }, async () => counted.charge([mine])))
    }
    const calls = async (tag: string) =>
      await (await cluster.masterOf(hashSlot(tag))).command('GET', `calls:{${tag}}`)
    await charge('turn', 24)
    expect(hashSlot('other')).not.toBe(hashSlot('turn'))
    await Promise.all([charge('turn', 20), charge('other', 20)])
    expect([await calls('turn'), await calls('other')]).toEqual(['2', '1'])
    await counted.close()
  })

  test.each<[string, (key: string) => readonly string[]]>([
    ['is too short', (key) => ['SET', key, 'abc']],
    ['is not a log', (key) => ['SET', key, 'x'.repeat(38 + 13)]],
    ['has lost its end', (key) => ['SET', key, `${'\0'.repeat(3)}\x20${'\0'.repeat(100)}`]],
    ['is of another version', (key) => ['SETRANGE', key, '0', '\x01']],
    ['has another type', (key) => ['HSET', key, 'a', 'b']],
  ])(
    'fails only the decisions of a key that %s, and charges the other keys exactly',
    async (what, damage) => {
      const bad = quota(`damaged ${what}`, 5, 60_000)
      const good = quota(`good ${what}`, 1001, 60_000)
      const command = damage(bad.key)
      if (command[0] === 'SETRANGE') await store.charge([bad])
      else await server.command('DEL', bad.key)
      await server.command(command[0]!, ...command.slice(1))
      const replies: (Error | undefined)[] = []
      store.listen((_, error) => void replies.push(error))
      let admitted = 0
      for (let i = 0; i < 20; i++) {
        const batch = [
          ...Array.from({ length: 60 }, async () => store.charge([good])),
          store.charge([good, bad]),
        ]
        const ends = await Promise.allSettled(batch)
        expect(ends.pop()).toMatchObject({ status: 'rejected', reason: new DamagedKeyError(bad.key) })
        for (const end of ends) if (end.status === 'fulfilled' && end.value.admitted) admitted++
      }
      expect(admitted).toBe(1001)
      expect(new Set(replies)).toEqual(new Set([undefined]))
      store.listen(() => {})
      await expect(store.charge([bad])).rejects.toThrow(DamagedKeyError)
      await expect(store.peek([bad])).rejects.toThrow(DamagedKeyError)
      // The key may hold a secret.
      await expect(store.peek([bad])).rejects.not.toThrow(bad.key)
      await server.command('DEL', bad.key)
      expect(await store.charge([bad])).toMatchObject({ admitted: true })
    },
  )

  describe('the mark of a merge', () => {
    const HOUR_MS = 3_600_000
    const TIMEOUT_MS = 1000
    const hourly = (name: string) => quota(name, 5, HOUR_MS)
    const own = (): Merge['calls'] => [{ atUs: Math.floor(performance.now() * 1000), calls: 1 }]
    const merge = (mine: Quota, number: number, calls = own()): Merge => ({
      ...{ number, quota: mine, calls, spreadMs: 0 },
    })
    async function open(edit = (script: string) => script) {
      const options = { topology: { url: server.url }, prefix: 'r', timeoutMs: TIMEOUT_MS, edit }
      const gateway = createRedisStore(options)
      await gateway.connect()
      const marks = async (name: string) =>
        (await server.command('KEYS', `r:{${name}}:~merged:*`)) as string[]
      const ttlOf = async (name: string) => Number(await server.command('PTTL', (await marks(name))[0]!))
      return { gateway, marks, ttlOf }
    }

    test('is kept for a minute after the answer, in which the merge is not repeated, and removed at the close', async () => {
      const { gateway, marks, ttlOf } = await open()
      const mine = hourly('marked')
      const calls = own()
      expect(await gateway.merge(merge(mine, 1, calls))).toMatchObject({ allowances: [{ used: 1 }] })
      await until('it expires soon', async () => (await ttlOf('marked')) <= 60_000 + TIMEOUT_MS)
      expect(await gateway.merge(merge(mine, 1, calls))).toMatchObject({ allowances: [{ used: 1 }] })
      expect(await gateway.merge(merge(mine, 2))).toMatchObject({ allowances: [{ used: 2 }] })
      await gateway.close()
      await until('it is removed', async () => (await marks('marked')).length === 0)
    })

    test('is kept for a window without an answer, and for a minute after the close', async () => {
      // The merge is done, but cannot be read.
      const { gateway, marks, ttlOf } = await open((script) =>
        script === CHARGE_SCRIPT ? `return redis.error_reply('ERR failed')` : script,
      )
      await expect(gateway.merge(merge(hourly('unread'), 1))).rejects.toThrow('failed')
      expect(await ttlOf('unread')).toBeGreaterThan(HOUR_MS)
      await gateway.close()
      await until('it expires soon', async () => (await ttlOf('unread')) <= 60_000 + TIMEOUT_MS)
      expect(await marks('unread')).toHaveLength(1)
    })
  })

  describe('a settlement', () => {
    const cost = 10
    const minute = (name: string) => ({ ...quota(name, 100, 60_000), cost })
    const open = async (edit = (script: string) => script) => {
      const gateway = createRedisStore({ topology: { url: server.url }, prefix: 'r', timeoutMs: 1000, edit })
      closeLater(() => gateway.close())
      await gateway.connect()
      return gateway
    }
    const usedOf = async (gateway: RedisStore, mine: Quota) => (await gateway.peek([mine]))[0]!.used

    test('is done once, also if it is sent again, and is one script for all limits of all calls', async () => {
      const gateway = await open(counting)
      const [mine, other] = [minute('settled'), { ...minute('settled'), key: 'r:{settled}:other' }]
      const first = await gateway.charge([mine, other])
      const second = await gateway.charge([mine])
      const all = [
        { quota: mine, points: -7, chargedUs: first.chargedUs! },
        { quota: other, points: 5, chargedUs: first.chargedUs! },
        { quota: mine, points: 100, chargedUs: second.chargedUs! },
      ]
      const before = Number(await server.command('GET', 'calls:{settled}'))
      await gateway.settle({ number: 1, all })
      await gateway.settle({ number: 1, all })
      expect(Number(await server.command('GET', 'calls:{settled}')) - before).toBe(2)
      expect([await usedOf(gateway, mine), await usedOf(gateway, other)]).toEqual([113, 15])
      await gateway.settle({ number: 2, all: all.slice(0, 1).map((one) => ({ ...one, points: -3 })) })
      expect(await usedOf(gateway, mine)).toBe(110)
    })

    test('leaves neither a key without calls, nor one that does not expire', async () => {
      const gateway = await open()
      const mine = minute('expires')
      const charges = [await gateway.charge([mine]), await gateway.charge([mine])]
      const settle = (number: number) =>
        gateway.settle({
          number: number + 1,
          all: [{ quota: mine, points: -cost, chargedUs: charges[number]!.chargedUs! }],
        })
      await settle(0)
      const ttlMs = Number(await server.command('PTTL', mine.key))
      expect(ttlMs > 50_000 && ttlMs <= 60_000).toBe(true)
      await settle(1)
      expect(await server.command('EXISTS', mine.key)).toBe(0)
    })

    test('reads and writes as many slots as a log can have, whose oldest is in their middle', async () => {
      const gateway = await open()
      const mine = { ...quota('full', 1000, 60_000), cost: 1 }
      const charges: Charge[] = []
      for (let i = 0; i < 1000; i++) charges.push(await gateway.charge([mine]))
      const instants = charges.map(({ chargedUs }) => chargedUs!)
      await server.command('EVAL', TURN, 1, mine.key, 500)
      const all = [
        { quota: mine, points: -1, chargedUs: instants[999]! },
        { quota: mine, points: 6, chargedUs: instants[0]! },
      ]
      await gateway.settle({ number: 1, all })
      expect(await usedOf(gateway, mine)).toBe(1005)
      const slots = (await server.command('EVAL', SLOTS, 1, mine.key)) as number[]
      expect(slots).toEqual(instants.slice(0, 999).flatMap((us, i) => [us, i + 7]))
    })

    test('adds no more than a log can count, and leaves the calls after it their numbers', async () => {
      const gateway = await open()
      const mine = minute('most')
      const [first, second] = [await gateway.charge([mine]), await gateway.charge([mine])]
      const all = [{ quota: mine, points: 1e15, chargedUs: first.chargedUs! }]
      await gateway.settle({ number: 1, all })
      const most = 2 ** 48 - 1
      expect(await usedOf(gateway, mine)).toBe(most)
      const slots = await server.command('EVAL', SLOTS, 1, mine.key)
      expect(slots).toEqual([first.chargedUs, most - cost, second.chargedUs, most])
    })

    test('skips a damaged key, and settles the others', async () => {
      const gateway = await open()
      const [mine, bad] = [minute('sound'), minute('bad')]
      const { chargedUs } = await gateway.charge([mine])
      await server.command('SET', bad.key, 'rubbish')
      const all = [bad, mine].map((quota) => ({ quota, points: -4, chargedUs: chargedUs! }))
      await gateway.settle({ number: 1, all })
      expect(await usedOf(gateway, mine)).toBe(6)
      expect(await server.command('GET', bad.key)).toBe('rubbish')
    })
  })

  test('counts the gateways that share it, and reports the loss of its data', async () => {
    const lost: (readonly [number, number])[] = []
    const open = async () => {
      const gateway = createRedisStore({
        topology: { url: server.url },
        prefix: 'shared',
        onEmptied: (...range) => lost.push(range),
      })
      await gateway.connect()
      return gateway
    }
    const [first, second] = [await open(), await open()]
    await first.probe('redis')
    expect([first.gateways(), second.gateways()]).toEqual([2, 2])
    expect(lost).toEqual([])
    await server.command('DEL', 'shared:{}:~since')
    await first.probe('redis')
    await first.probe('redis')
    expect(lost).toHaveLength(1)
    const [countedUntil, emptySince] = lost[0]!
    expect(emptySince).toBeGreaterThan(countedUntil)
    await Promise.all([first.close(), second.close()])
  })

  test('forgets gateways that are registered in the future', async () => {
    const key = 'future:{}:~gateways'
    const gateway = createRedisStore({ topology: { url: server.url }, prefix: 'future' })
    await gateway.connect()
    const dayAhead = 1000 * (Date.now() + 86_400_000)
    await server.command(
      'ZADD',
      key,
      ...Array.from({ length: 99 }, (_, i) => [dayAhead, `ghost ${i}`]).flat(),
    )
    await gateway.probe('redis')
    expect(gateway.gateways()).toBe(1)
    expect(await server.command('ZCARD', key)).toBe(1)
    await gateway.close()
  })

  test('compares at most 100 calls in progress to find the oldest', async () => {
    const mine = { ...quota('many', 1000, 60_000), isConcurrent: true }
    const nowUs = 1000 * Date.now() + 3600e6
    /** Leases that end one after the other; the later a lease ends, the earlier its call began. */
    const leases = Array.from({ length: 150 }, (_, i) => [nowUs + i, `${1000 - i}000000:r:${i}`])
    await server.command('ZADD', mine.key, ...leases.flat())
    expect(await store.peek([mine])).toMatchObject([{ used: 150, sinceAt: (1000 - 99) * 1000 }])
    await server.command('DEL', mine.key)
  })

  test('frees a place of calls at once whose lease ends later than any lease can', async () => {
    const mine = { ...quota('ghosts', 2, 1000), isConcurrent: true }
    const year = 365 * 86_400e6
    await server.command('ZADD', mine.key, 1000 * Date.now() + year, '1:ghost:1')
    expect(await store.charge([mine], undefined, '1:r:1')).toMatchObject({ admitted: true })
    expect(await store.charge([mine], undefined, '1:r:2')).toMatchObject({ admitted: true })
    expect(await store.charge([mine], undefined, '1:r:3')).toMatchObject({ admitted: false })
    expect(((await server.command('ZRANGE', mine.key, 0, -1)) as string[]).toSorted()).toEqual([
      '1:r:1',
      '1:r:2',
    ])
  })

  test.each([
    ['~gateways', ['SET', 'garbage']],
    ['~since', ['RPUSH', 'garbage']],
  ])('replaces its own key %s if that has another type', async (name, [command, value]) => {
    const key = `r:{}:${name}`
    await server.command('DEL', key)
    await server.command(command!, key, value!)
    await store.probe('redis')
    expect(store.gateways()).toBeGreaterThanOrEqual(1)
  })

  describe('the summaries of gateways', () => {
    const KEY = 'r:{}:~summaries'
    const shown = async (id: string) =>
      (await store.shareSummary({ id, summary: `of ${id}`, isShown: true })).map(({ field, summary }) => [
        field,
        summary,
      ])
    const redisMs = async () => Number(((await server.command('TIME')) as string[])[0]) * 1000

    test('are returned to the others, and the key expires without gateways', async () => {
      await server.command('DEL', KEY)
      expect(await shown('a')).toEqual([])
      expect(await shown('b')).toEqual([['a', 'of a']])
      expect(await shown('a')).toEqual([['b', 'of b']])
      expect(Number(await server.command('PTTL', KEY))).toBeGreaterThan(5000)
    })

    test('are written only while another gateway shows them', async () => {
      const WATCHED = 'r:{}:~watched'
      await server.command('DEL', KEY, WATCHED)
      const written = async () => {
        await store.probe('redis')
        expect(await store.shareSummary({ id: 'a', summary: 'of a', isShown: false })).toEqual([])
        return await server.command('HKEYS', KEY)
      }
      expect(await written()).toEqual([])
      await shown('b')
      expect(await written()).toEqual(['b', 'a'])
      expect(Number(await server.command('PTTL', WATCHED))).toBeGreaterThan(5000)
      await server.command('DEL', KEY, WATCHED)
      expect(await written()).toEqual([])
    })

    test('are deleted and not returned after ten seconds, dated in the future, or damaged', async () => {
      await server.command('DEL', KEY)
      const now = await redisMs()
      const fields = {
        young: `${now - 2000} young`,
        gone: `${now - 20_000} gone`,
        future: `${now + 34_560_000_000} future`,
        damaged: 'damaged',
        empty: '',
        blank: ' blank',
      }
      await server.command('HSET', KEY, ...Object.entries(fields).flat())
      expect(await shown('a')).toEqual([['young', 'young']])
      const kept = async () => ((await server.command('HKEYS', KEY)) as string[]).toSorted()
      await until('old fields are deleted', async () => (await kept()).length === 2)
      expect(await kept()).toEqual(['a', 'young'])
    })

    test('are deleted if they are too many', async () => {
      const fill = async (count: number, value: string) => {
        const fields = Array.from({ length: count }, (_, i) => [`field ${i}`, value]).flat()
        await server.command('HSET', KEY, ...fields)
      }
      const size = async () => Number(await server.command('HLEN', KEY))
      await server.command('DEL', KEY)
      await fill(999, 'damaged')
      await shown('a')
      await until('the damaged ones are deleted', async () => (await size()) === 1)
      await fill(1001, `${await redisMs()} young`)
      expect(await shown('a')).toHaveLength(1001)
      await until('all are deleted', async () => (await size()) === 0)
    })

    test('are shared on a cluster, and withdrawn at the close', async () => {
      const prefix = `r-${Math.random()}`
      const key = `${prefix}:{}:~summaries`
      const options = { topology: { cluster: cluster.urls }, prefix, timeoutMs: 2000 }
      const [first, second] = [createRedisStore(options), createRedisStore(options)]
      await Promise.all([first.connect(), second.connect()])
      await first.shareSummary({ id: 'a', summary: 'of a', isShown: true })
      expect(await second.shareSummary({ id: 'b', summary: 'of b', isShown: true })).toMatchObject([
        { field: 'a', summary: 'of a' },
      ])
      await first.close()
      const master = await cluster.masterOf(hashSlot(key))
      await until('it is withdrawn', async () => (await master.command('HEXISTS', key, 'a')) === 0)
      expect(await second.shareSummary({ id: 'b', summary: 'of b', isShown: true })).toEqual([])
      await second.close()
    })
  })

  test('charges a key twice that occurs twice in one decision', async () => {
    const mine = quota('twice', 3, 60_000)
    expect(await store.charge([mine, mine])).toMatchObject({ admitted: true })
    expect((await store.peek([mine]))[0]).toMatchObject({ remaining: 1 })
  })

  test('lets calls of the gateway leave, too, if they leave too few points for a call', async () => {
    const counted = { ...quota('beside', 10, 60_000), cost: 4 }
    const own = {
      isEmpty: () => false,
      unstored: () => 0,
      since: () => ({ calls: 7, sent: 0, number: 0, spreadMs: 50 }),
    }
    const { allowances } = await store.charge([counted], own)
    expect(allowances).toMatchObject([{ admitted: false, remaining: 3, retryAfterMs: 60_050 }])
    expect((await store.charge([{ ...counted, cost: 3 }], own)).admitted).toBe(true)
  })

  test('reports the same Reset as other gateways, on the clock of Redis', async () => {
    const other = createRedisStore({ topology: { url: server.url }, prefix: 'r' })
    await other.connect()
    const mine = quota('reset', 5, 60_000)
    await store.charge([mine])
    const [here, there] = [await store.peek([mine]), await other.peek([mine])]
    expect(there[0]!.resetAt).toBe(here[0]!.resetAt)
    const [seconds, micros] = (await server.command('TIME')) as [string, string]
    expect(here[0]!.resetAt).toBeGreaterThan(Number(seconds) * 1000 + Number(micros) / 1000)
    await other.close()
  })
})
