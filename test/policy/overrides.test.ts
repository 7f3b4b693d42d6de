import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { createLiveOverrides } from '../../src/process/overrides-live.ts'
import { showCaller } from '../../src/policy/counted-caller.ts'
import {
  fieldOf,
  formatOverride,
  listOverrides,
  MAX_OVERRIDES,
  type Override,
  overrideKey,
  parseOverrides,
} from '../../src/policy/overrides.ts'
import { createMemoryFields, type SharedFields } from '../../src/limit/versioned-fields.ts'
import { createRedisStore, type RedisStore } from '../../src/limit/redis/store.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { sharedCluster, sharedSentinels } from '../helpers/shared-redis.ts'
import { until } from '../helpers/wait.ts'

const KEY = 'p:{}:~overrides'
/** Key of values that are then moved to `KEY`, so that `KEY` is never empty for a reader. */
const OTHER = 'other'
const HOUR_MS = 3_600_000
const of = (client: string, limit = 5, rest: Partial<Override> = {}): Override => ({
  ...{ caller: [{ word: 'client', value: client }], name: 'requests', limit, setAt: 1 },
  ...rest,
})

/** Returns the fields as a source keeps them. */
const fieldsOf = (...overrides: Override[]) =>
  Object.fromEntries(overrides.map((override) => [fieldOf(override), formatOverride(override)]))

describe('the fields of overrides', () => {
  it('the fields of overrides are read as they were written, without the version', () => {
    const all = [of('a b "c" ü', 0), of('b', 2, { untilAt: 3, by: 'jo@desk', note: 'a "reason"' })]
    expect(parseOverrides({ ...fieldsOf(...all), version: 'x' })).toEqual({ overrides: all, bad: [] })
    expect(parseOverrides({})).toEqual({ overrides: [], bad: [] })
  })

  const FIELD = fieldOf(of('a'))
  it.each([
    ['invalid JSON', FIELD, '{"limit":'],
    ['null', FIELD, 'null'],
    ['another kind of field', 'a', formatOverride(of('a'))],
    ['a caller of another kind', '[7,"requests"]', formatOverride(of('a'))],
    ['an address that is none', '["ip:x","requests"]', formatOverride(of('a'))],
    ['an empty caller', '["","requests"]', formatOverride(of('a'))],
    ['a fraction', FIELD, JSON.stringify({ limit: 1.5, setAt: 1 })],
    ['a negative number', FIELD, JSON.stringify({ limit: -1, setAt: 1 })],
    ['an invalid end', FIELD, JSON.stringify({ limit: 1, setAt: 1, untilAt: 'soon' })],
    ['an end beyond all dates', FIELD, JSON.stringify({ limit: 1, setAt: 1, untilAt: 1e16 })],
    ['a long note', FIELD, JSON.stringify({ limit: 1, setAt: 1, note: 'x'.repeat(5000) })],
    ['a limit with a line feed in its name', JSON.stringify(['a', 'requests\nx']), formatOverride(of('a'))],
    ['a client with a line feed', JSON.stringify(['a\nb', 'requests']), formatOverride(of('a'))],
    ['a claim with an escaped one', JSON.stringify(['claim:c="a\\nb"', 'x']), formatOverride(of('a'))],
    ['a caller of 17 parts', JSON.stringify([`a${' ip:1.1.1.1'.repeat(16)}`, 'x']), formatOverride(of('a'))],
  ])('the fields of overrides are ignored if damaged: %s; the other fields count', (_, field, value) => {
    expect(parseOverrides({ [field]: value, ...fieldsOf(of('good')) })).toEqual({
      overrides: [of('good')],
      bad: [field],
    })
  })

  it.each([
    [{}, 7],
    ['ann\nbob', 'ok\nvictim  requests  0'],
    ['\u001b[2J', '\u0085'],
  ])('drops who set it and why, unless they are texts of one line: %j, %j', (by, note) => {
    const { overrides, bad } = parseOverrides({ [FIELD]: JSON.stringify({ limit: 1, setAt: 1, by, note }) })
    expect(bad).toEqual([])
    expect(overrides).toMatchObject([{ limit: 1, by: undefined, note: undefined }])
  })

  it('the fields of overrides are read up to a maximum number', () => {
    const many = Array.from({ length: MAX_OVERRIDES + 2 }, (_, i) => of(String(i)))
    const { overrides, bad } = parseOverrides(fieldsOf(...many))
    expect([overrides.length, bad.length]).toEqual([MAX_OVERRIDES, 2])
  })

  it('the fields of overrides are listed in order, including overrides without effect', () => {
    const limits = [
      { name: 'requests', per: ['client'], limit: 1, windowMs: 1, shadow: false, changes: [] },
      { name: 'shared', per: ['ip'], limit: 1, windowMs: 1, shadow: false, changes: [] },
    ]
    const all = [
      of('b', 5, { by: 'jo@desk', note: 'why' }),
      of('a', 5, { name: 'shared' }),
      of('a', 5, { name: 'gone' }),
      of('c', 5, { untilAt: 10 }),
    ]
    const listed = listOverrides(all, limits, 9)
    expect(listed.map(({ caller, name, applies }) => [caller, name, applies])).toEqual([
      ['client:a', 'gone', false],
      ['client:a', 'shared', false],
      ['client:b', 'requests', true],
      ['client:c', 'requests', true],
    ])
    expect(listed[2]).toMatchObject({
      until: null,
      set: '1970-01-01T00:00:00.001Z',
      by: 'jo@desk',
      note: 'why',
    })
    expect(listOverrides(all, limits, 10)).toHaveLength(3)
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
  const NOTHING = { onChange: () => {}, onUnreadable: () => {} }
  /** Adds overrides as another gateway does. */
  const add = (...added: Override[]) => createLiveOverrides(store.overrides, 'p', NOTHING).change(added, [])
  const remove = (...removed: Override[]) =>
    createLiveOverrides(store.overrides, 'p', NOTHING).change([], removed)
  const kept = async () =>
    parseOverrides(await store.overrides.read()).overrides.toSorted((a, b) =>
      showCaller(a.caller) < showCaller(b.caller) ? -1 : 1,
    )
  /** Moves the clock of this process, without running timers. */
  const wait = (ms: number) => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms })

  /** Follows the overrides as a gateway does. */
  function follow(source = store.overrides) {
    const seen: string[] = []
    const live = createLiveOverrides(source, 'p', {
      onChange: (count) => seen.push(`${count}`),
      onRestored: (count) => seen.push(`restored ${count}`),
      onUnreadable: (lines) => seen.push(`bad ${lines}`),
      everyMs: 20,
    })
    closing.push(live.close)
    const limitOf = (client: string) => live.limits.get(overrideKey('p', of(client)))?.limit
    return { ...live, seen, limitOf }
  }

  it('the overrides in Redis are changed by several operators at once without losing a change', async () => {
    await Promise.all(Array.from({ length: 8 }, (_, i) => add(of(String(i)))))
    expect((await kept()).map(({ caller }) => showCaller(caller))).toEqual(
      ['0', '1', '2', '3', '4', '5', '6', '7'].map((id) => `client:${id}`),
    )
  })

  it('the overrides in Redis are one hash that does not expire, with a version that every change replaces', async () => {
    await add(of('a', 5, { untilAt: Date.now() + HOUR_MS }), of('b'))
    expect(await redis.command('HLEN', KEY)).toBe(3)
    expect(await redis.command('PTTL', KEY)).toBe(-1)
    const version = await store.overrides.version()
    await add(of('b'))
    expect(await store.overrides.version()).not.toBe(version)
  })

  it('the overrides in Redis are in force at once at the gateway that changes them', async () => {
    const { change, limitOf } = follow()
    await change([of('a', 7), of('b', 8)], [])
    expect([limitOf('a'), limitOf('b')]).toEqual([7, 8])
    await change([of('a', 9)], [of('b')])
    expect([limitOf('a'), limitOf('b')]).toEqual([9, undefined])
  })

  it('the overrides in Redis are written back if Redis has lost them', async () => {
    await add(of('a', 7), of('b', 8, { untilAt: Date.now() + HOUR_MS }))
    const { load, watch, seen, limitOf } = follow()
    await load()
    watch(() => {})
    await redis.command('DEL', KEY)
    await until('they are written back', () => seen.includes('restored 2'))
    expect(limitOf('a')).toBe(7)
    expect((await kept()).map(({ caller }) => showCaller(caller))).toEqual(['client:a', 'client:b'])
    await remove(of('a'), of('b'))
    await until('all are removed', () => limitOf('a') === undefined)
  })

  it.each([
    ['a poll', async () => {}],
    ['the next change', async ({ change }: ReturnType<typeof follow>) => await change([of('c', 3)], [])],
  ])(
    'the overrides in Redis are written back without the removed ones if %s finds older data',
    async (_, act) => {
      await add(of('a', 7), of('b', 8))
      await redis.command('COPY', KEY, OTHER)
      const live = follow()
      await live.change([of('a', 9)], [of('b')])
      await redis.command('RENAME', OTHER, KEY)
      await act(live)
      live.watch(() => {})
      await until('they are written back', () => live.seen.includes('restored 1'))
      expect((await kept()).map(({ caller, limit }) => [showCaller(caller), limit])).toEqual([
        ['client:a', 9],
        ...(live.limitOf('c') === undefined ? [] : [['client:c', 3]]),
      ])
      expect([live.limitOf('a'), live.limitOf('b')]).toEqual([9, undefined])
    },
  )

  it('the overrides in Redis are read after two gateways have changed older data to the same version counter', async () => {
    const { change, load, limitOf } = follow()
    await change([of('a', 7)], [])
    await redis.command(
      'HSET',
      KEY,
      ...Object.entries({ ...fieldsOf(of('a', 8)), version: '1 other' }).flat(),
    )
    await load()
    expect(limitOf('a')).toBe(8)
  })

  it('the overrides in Redis that do not exist can be removed without a change', async () => {
    await add(of('a'))
    const version = await store.overrides.version()
    await remove(of('b'))
    expect(await store.overrides.version()).toBe(version)
  })

  it('the overrides in Redis that have ended are removed by the next change', async () => {
    await add(of('a', 5, { untilAt: Date.now() - 1 }))
    expect(await kept()).toHaveLength(1)
    await add(of('b'))
    expect(await kept()).toEqual([of('b')])
  })

  it('the overrides in Redis are limited to 10,000', async () => {
    const many = Array.from({ length: MAX_OVERRIDES }, (_, i) => of(`client-${i}`))
    await add(...many)
    await expect(add(of('another'))).rejects.toThrow('There are 10000 overrides at most; remove some')
    const { load, limits } = follow()
    await load()
    expect(limits.size).toBe(MAX_OVERRIDES)
  })

  it.each([
    ['a list', ['RPUSH', OTHER, 'garbage']],
    ['a text', ['SET', OTHER, 'gärbage'.repeat(10)]],
    ['another hash', ['HSET', OTHER, 'a', 'b']],
  ])('the overrides in Redis are written back if %s was written to their key', async (_, command) => {
    await add(of('a', 7))
    const { load, watch, seen, limitOf } = follow()
    await load()
    watch(() => {})
    await redis.command(...command)
    await redis.command('RENAME', OTHER, KEY)
    await until('they are written back', () => seen.includes('restored 1'))
    expect(limitOf('a')).toBe(7)
    await add(of('a', 8))
    await until('they are read again', () => limitOf('a') === 8)
  })

  it('the overrides in Redis are read without damaged fields, which the next change removes', async () => {
    await add(of('a', 7))
    await redis.command('HSET', KEY, 'x', 'garbage', 'version', 'other')
    const { load, seen, limitOf } = follow()
    await load()
    expect(limitOf('a')).toBe(7)
    expect(seen).toEqual(['bad 1', '1'])
    await add(of('b'))
    expect(await redis.command('HEXISTS', KEY, 'x')).toBe(0)
  })

  it('the overrides in Redis are written back if their version has a counter that no change can follow', async () => {
    const { change, limitOf } = follow()
    await change([of('a', 7)], [])
    await redis.command('HSET', KEY, 'version', '999999999999999 x')
    await change([of('a', 8)], [])
    expect(limitOf('a')).toBe(8)
    const { load, limitOf: limitOfAnother } = follow()
    await load()
    expect(limitOfAnother('a')).toBe(8)
  })

  it.each(['999999999998 x', '999999999999 x'])(
    'the overrides in Redis are changed and read beyond the version %s',
    async (version) => {
      const { change, limitOf, load } = follow()
      await change([of('a', 7)], [])
      await redis.command('HSET', KEY, 'version', version)
      for (const limit of [8, 9, 10]) {
        await change([of('a', limit)], [])
        await load()
        expect(limitOf('a')).toBe(limit)
      }
    },
  )

  it('the overrides in Redis that have no effect are refused', async () => {
    const { change } = createLiveOverrides({ ...store.overrides, change: async () => {} }, 'p', {
      onChange: () => {},
      onUnreadable: () => {},
    })
    await expect(change([of('a', 8)], [])).rejects.toThrow('the change has no effect')
  })

  it('the overrides in Redis are followed: each change, and each end without a change', async () => {
    await add(of('a', 7))
    const { load, watch, seen, limits, limitOf } = follow()
    await load()
    expect(limitOf('a')).toBe(7)
    let applied = 0
    watch(() => applied++)
    await add(of('a', 8), of('b', 9, { untilAt: Date.now() + HOUR_MS }))
    await until('the change is in force', () => limitOf('a') === 8 && limitOf('b') === 9)
    wait(HOUR_MS)
    await until('one override has ended', () => limits.size === 1)
    expect(seen).toEqual(['1', '2', '1'])
    expect(applied).toBe(2)
    await remove(of('a'))
    await until('all are removed', () => limits.size === 0)
  })

  it('stay in force while Redis is down, until they end', async () => {
    await add(of('a', 7), of('b', 8, { untilAt: Date.now() + HOUR_MS }))
    const { load, watch, seen, limitOf } = follow()
    await load()
    watch(() => {})
    await redis.kill()
    wait(HOUR_MS)
    await until('one override has ended', () => limitOf('b') === undefined)
    expect(limitOf('a')).toBe(7)
    await redis.start()
    await until('Redis, which is empty, has them again', () => seen.includes('restored 1'))
    expect(limitOf('a')).toBe(7)
    expect(seen).toEqual(['2', '1', 'restored 1'])
  })
})

describe('the overrides in memory', () => {
  it('the overrides in memory are changed, removed, and kept while the process runs', async () => {
    const source: SharedFields = createMemoryFields()
    const seen: number[] = []
    const live = createLiveOverrides(source, 'memory', {
      onChange: (count) => seen.push(count),
      onUnreadable: () => {},
    })
    await live.load()
    await live.change([of('a', 7), of('b')], [])
    await live.change([], [of('b')])
    expect(live.limits.get(overrideKey('memory', of('a')))?.limit).toBe(7)
    expect(live.values()).toHaveLength(1)
    expect(seen).toEqual([2, 1])
    await live.change([], [of('b')])
    expect([await source.version(), seen]).toEqual(['2', [2, 1]])
  })
})

describe('as many overrides as there may be', () => {
  const MANY = Array.from({ length: MAX_OVERRIDES }, (_, i) => of(`client-${i}`))
  async function followMany() {
    const source = createMemoryFields()
    const write = (fields: Readonly<Record<string, string>>) =>
      source.change(new Map(Object.entries(fields)), '')
    await write(fieldsOf(...MANY))
    const changes: [number, readonly Override[], readonly Override[]][] = []
    const live = createLiveOverrides(source, 'p', {
      onChange: (...change) => changes.push(change),
      onUnreadable: () => {},
    })
    const limitOf = (client: string) => live.limits.get(overrideKey('p', of(client)))?.limit
    return { ...live, source, write, changes, limitOf }
  }

  it('are parsed in slices, between which other work is done', async () => {
    const { load, values } = await followMany()
    let iterations = 0
    let isLoading = true
    const count = (): void => {
      iterations++
      if (isLoading) setImmediate(count)
    }
    setImmediate(count)
    await load()
    isLoading = false
    expect(iterations).toBeGreaterThan(2)
    expect(values()).toEqual(MANY)
  })

  it('are compared with those before by each field: only the changed ones are reported', async () => {
    const { load, write, changes, values } = await followMany()
    await load()
    expect(changes.splice(0)).toEqual([[MAX_OVERRIDES, MANY, []]])
    const [field] = Object.keys(fieldsOf(of('client-7')))
    // The same override in another order of its members, and a changed one.
    await write({ [field!]: '{"setAt":1,"limit":5}', ...fieldsOf(of('client-8', 9)) })
    await load()
    expect(changes.splice(0)).toEqual([[MAX_OVERRIDES, [of('client-8', 9)], [of('client-8')]]])
    expect(values()).toEqual(MANY.with(8, of('client-8', 9)))
    await write(fieldsOf(of('client-8')))
    await load()
    expect(changes).toEqual([[MAX_OVERRIDES, [of('client-8')], [of('client-8', 9)]]])
  })

  it('lose no change that is made while they are parsed, by this gateway or another', async () => {
    const { load, write, change, changes, limitOf } = await followMany()
    for (const isOwn of [false, true]) {
      const loading = load()
      await new Promise(setImmediate)
      const limit = isOwn ? 7 : 6
      if (isOwn) await change([of('client-1', limit)], [])
      else await write(fieldsOf(of('client-1', limit)))
      await loading
      if (!isOwn) await load()
      expect(limitOf('client-1')).toBe(limit)
      // For the next reading, all fields are new.
      await write(fieldsOf(...MANY.map((one) => ({ ...one, setAt: limit }))))
    }
    await load()
    expect(limitOf('client-1')).toBe(5)
    expect(changes.map(([count]) => count)).toEqual(changes.map(() => MAX_OVERRIDES))
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
    const live = createLiveOverrides(store.overrides, 'p', { onChange: () => {}, onUnreadable: () => {} })
    for (const limit of [5, 6]) {
      await live.change([of('a', limit)], [])
      expect(live.values()).toEqual([of('a', limit)])
    }
    await live.change([], [of('a')])
    expect(parseOverrides(await store.overrides.read()).overrides).toEqual([])
    await store.close()
  })
})
