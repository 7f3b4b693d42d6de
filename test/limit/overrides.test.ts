import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { changeOverrides, createLiveOverrides } from '../../src/limit/overrides-live.ts'
import {
  byClient,
  formatOverrides,
  listOverrides,
  MAX_OVERRIDES,
  type Override,
  parseOverrides,
  versionOf,
} from '../../src/limit/overrides.ts'
import { createRedisStore, type RedisStore } from '../../src/limit/redis/store.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { sharedCluster, sharedSentinels } from '../helpers/shared-redis.ts'
import { until } from '../helpers/wait.ts'

const KEY = 'p:{}:~overrides'
/** What is written there is then moved to `KEY`, so that no reader finds `KEY` empty. */
const OTHER = 'other'
const VERSION = '123e4567-e89b-12d3-a456-426614174000'
const HOUR_MS = 3_600_000
const of = (client: string, limit = 5, rest: Partial<Override> = {}): Override => ({
  ...{ client, name: 'requests', limit, setAt: 1 },
  ...rest,
})

describe('the text of overrides', () => {
  it('is read as it was written', () => {
    const all = [of('a\nb "c" ü', 0), of('', 1), of('b', 2, { untilAt: 3 })]
    const text = formatOverrides(VERSION, all)
    expect(versionOf(text)).toBe(VERSION)
    expect(parseOverrides(text)).toEqual({ overrides: [all[0], all[2]], bad: 1 })
    expect(parseOverrides('')).toEqual({ overrides: [], bad: 0 })
  })

  it.each([
    ['no JSON', '{"client":'],
    ['no object', 'null'],
    ['another kind of client', JSON.stringify({ ...of('a'), client: 7 })],
    ['a fraction', JSON.stringify(of('a', 1.5))],
    ['a negative number', JSON.stringify(of('a', -1))],
    ['an end that is none', JSON.stringify({ ...of('a'), untilAt: 'soon' })],
    ['an end beyond all dates', JSON.stringify(of('a', 1, { untilAt: 1e16 }))],
  ])('may be damaged: %s; the other lines count', (_, line) => {
    expect(parseOverrides(`${VERSION}\n${line}\n${JSON.stringify(of('good'))}`)).toEqual({
      overrides: [of('good')],
      bad: 1,
    })
  })

  it.each(['OK', 'garbage', VERSION.slice(1), `${VERSION}0`, `\n${VERSION}`, JSON.stringify(of('a'))])(
    'is something else without a version: %j',
    (text) => expect(parseOverrides(text)).toBeUndefined(),
  )

  it('has a most that is read', () => {
    const many = Array.from({ length: MAX_OVERRIDES + 2 }, (_, i) => of(String(i)))
    const { overrides, bad } = parseOverrides(formatOverrides(VERSION, many))!
    expect([overrides.length, bad]).toEqual([MAX_OVERRIDES, 1])
  })

  it('is listed in order, with those that do nothing', () => {
    const limits = [
      { name: 'requests', per: ['client'], limit: 1, windowMs: 1, shadow: false, changes: [] },
      { name: 'shared', per: ['ip'], limit: 1, windowMs: 1, shadow: false, changes: [] },
    ]
    const all = byClient([
      of('b'),
      of('a', 5, { name: 'shared' }),
      of('a', 5, { name: 'gone' }),
      of('c', 5, { untilAt: 10 }),
    ])
    const file = new Map([['b', new Map([['requests', { limit: 3, untilAt: 20 }]])]])
    const listed = (nowMs: number) =>
      listOverrides(all, limits, file, nowMs).map(({ client, name, applies, beatenByFile }) => [
        ...[client, name, applies, beatenByFile],
      ])
    expect(listed(9)).toEqual([
      ['a', 'gone', false, false],
      ['a', 'shared', false, false],
      ['b', 'requests', true, true],
      ['c', 'requests', true, false],
    ])
    expect(listed(20).slice(2)).toEqual([['b', 'requests', true, false]])
  })
})

describe('the overrides in Redis', () => {
  let redis: RedisServer
  let store: RedisStore
  const closing: (() => unknown)[] = []
  beforeAll(async () => {
    redis = await startRedis()
    store = createRedisStore({ topology: { url: redis.url }, prefix: 'p' })
    await store.connect()
  })
  afterEach(async () => {
    vi.useRealTimers()
    for (const close of closing.splice(0)) await close()
    await redis.command('DEL', KEY)
  })
  afterAll(async () => {
    await store.close()
    await redis.close()
  })
  const add = (...added: Override[]) => {
    const kept = (before: readonly Override[]) => before.filter(({ client }) => client !== added[0]!.client)
    return changeOverrides(store.overrides, (before) => [...kept(before), ...added], Date.now())
  }
  /** Moves the clock of this process, and no timer. */
  const wait = (ms: number) => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms })

  /** Follows them as a gateway does. */
  function follow(source = store.overrides) {
    const seen: string[] = []
    const live = createLiveOverrides(source, {
      onChange: (count) => seen.push(`${count}`),
      onRestored: (count) => seen.push(`restored ${count}`),
      onBad: (lines) => seen.push(`bad ${lines}`),
      everyMs: 20,
    })
    closing.push(live.close)
    const limitOf = (client: string) => live.limits.get(client)?.get('requests')?.limit
    return { ...live, seen, limitOf }
  }

  it('are changed by several operators at once, and none is lost', async () => {
    await Promise.all(Array.from({ length: 8 }, (_, i) => add(of(String(i)))))
    const { overrides } = parseOverrides(await store.overrides.read(10_000))!
    expect(overrides.map(({ client }) => client).toSorted()).toEqual(['0', '1', '2', '3', '4', '5', '6', '7'])
  })

  it('leave Redis an hour after the last has ended or was removed', async () => {
    await add(of('a', 5, { untilAt: Date.now() + HOUR_MS }))
    const life = Number(await redis.command('PTTL', KEY))
    expect(life).toBeGreaterThan(HOUR_MS)
    expect(life).toBeLessThanOrEqual(2 * HOUR_MS)
    await add(of('b'))
    expect(await redis.command('PTTL', KEY)).toBe(-1)
    await changeOverrides(store.overrides, () => [], Date.now())
    expect(Number(await redis.command('PTTL', KEY))).toBeGreaterThan(0)
    expect(Number(await redis.command('PTTL', KEY))).toBeLessThanOrEqual(HOUR_MS)
  })

  it('are written back where Redis has lost them', async () => {
    await add(of('a', 7), of('b', 8, { untilAt: Date.now() + HOUR_MS }))
    const { load, watch, seen, limitOf } = follow()
    await load()
    watch(() => {})
    await redis.command('DEL', KEY)
    await until('they are written back', () => seen.includes('restored 2'))
    expect(limitOf('a')).toBe(7)
    const { overrides } = parseOverrides(await store.overrides.read(10_000))!
    expect(overrides.map(({ client }) => client)).toEqual(['a', 'b'])
    await changeOverrides(store.overrides, () => [], Date.now())
    await until('all are removed', () => limitOf('a') === undefined)
  })

  it('that have ended are left out at the next change', async () => {
    await add(of('a', 5, { untilAt: Date.now() - 1 }))
    expect(await add(of('b'))).toEqual([of('b')])
  })

  it('are 10,000 at most', async () => {
    const many = Array.from({ length: MAX_OVERRIDES }, (_, i) => of(`client-${i}`))
    await add(...many)
    await expect(add(of('another'))).rejects.toThrow(
      'Redis keeps 10000 overrides at most, in 8 MB; remove some',
    )
    const { load, limits } = follow()
    await load()
    expect(limits.size).toBe(MAX_OVERRIDES)
  })

  it.each([
    ['a list', ['RPUSH', OTHER, 'garbage']],
    ['other text', ['SET', OTHER, 'gärbage'.repeat(10)]],
  ])(
    'are made anew where %s was written there, which a gateway reports once, keeping what it knew',
    async (_, command) => {
      await add(of('a', 7))
      const { load, watch, seen, limitOf } = follow()
      await load()
      watch(() => {})
      await redis.command(...command)
      await redis.command('RENAME', OTHER, KEY)
      await until('it is reported', () => seen.includes('bad 1'))
      expect(limitOf('a')).toBe(7)
      await add(of('a', 8))
      await until('it is read again', () => limitOf('a') === 8)
      expect(seen).toEqual(['1', 'bad 1', '1'])
    },
  )

  it('are followed: each change, and each end without one', async () => {
    await add(of('a', 7))
    const { load, watch, seen, limits, limitOf } = follow()
    await load()
    expect(limitOf('a')).toBe(7)
    let applied = 0
    watch(() => applied++)
    await add(of('a', 8), of('b', 9, { untilAt: Date.now() + HOUR_MS }))
    await until('the change is in force', () => limitOf('a') === 8 && limitOf('b') === 9)
    wait(HOUR_MS)
    await until('one has ended', () => limits.size === 1)
    expect(seen).toEqual(['1', '2', '1'])
    expect(applied).toBe(2)
    await changeOverrides(store.overrides, () => [], Date.now())
    await until('all are removed', () => limits.size === 0)
  })

  it('stay as they are while Redis is down, and end nevertheless', async () => {
    await add(of('a', 7), of('b', 8, { untilAt: Date.now() + HOUR_MS }))
    const { load, watch, seen, limitOf } = follow()
    await load()
    watch(() => {})
    await redis.kill()
    wait(HOUR_MS)
    await until('one has ended', () => limitOf('b') === undefined)
    expect(limitOf('a')).toBe(7)
    await redis.start()
    await until('Redis, which is empty, has them again', () => seen.includes('restored 1'))
    expect(limitOf('a')).toBe(7)
    expect(seen).toEqual(['2', '1', 'restored 1'])
  })
})

describe.each([
  ['a cluster', async () => ({ cluster: (await sharedCluster()).urls })],
  [
    'sentinels',
    async () => {
      const { urls, name } = await sharedSentinels()
      return { sentinels: urls, name }
    },
  ],
])('overrides behind %s', (_, topology) => {
  it('are changed and read', async () => {
    const store = createRedisStore({ topology: await topology(), prefix: `overrides-${process.pid}` })
    await store.connect()
    for (const limit of [5, 6]) {
      const written = await changeOverrides(store.overrides, () => [of('a', limit)], Date.now())
      expect(parseOverrides(await store.overrides.read(1000))?.overrides).toEqual(written)
    }
    await changeOverrides(store.overrides, () => [], Date.now())
    expect(parseOverrides(await store.overrides.read(1000))?.overrides).toEqual([])
    await store.close()
  })
})
