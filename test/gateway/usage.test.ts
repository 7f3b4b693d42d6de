import { describe, expect, it } from 'vitest'
import type { ClientLimits, Limit } from '../../src/policy/limit.ts'
import { createMemoryStore } from '../../src/limit/memory/store.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import type { InspectedStore, Store } from '../../src/limit/store.ts'
import { parseCaller } from '../../src/policy/counted-caller.ts'
import { type Override, overrideKey } from '../../src/policy/overrides.ts'
import { createCounters, MAX_KEYS } from '../../src/admin/requests/counters.ts'
import { Reserves } from '../../src/gateway/reserves.ts'
import { createUsage } from '../../src/gateway/usage.ts'
import { closeLater } from '../helpers/closing.ts'
import { inspectedStore } from '../helpers/inspected.ts'
import { startRedis } from '../helpers/redis.ts'
import { quotasOf } from '../policy/quotas.ts'

/** The rest of `scenarios/read-limits.yaml`: what operators see and override, and what stores are asked. */

const DAY_MS = 86_400_000

const limit = (name: string, per: readonly string[], rest: Partial<Limit> = {}): Limit => ({
  name,
  per,
  limit: 10,
  windowMs: 60_000,
  shadow: false,
  changes: [],
  ...rest,
})
const LIMITS = [
  limit('requests', ['client']),
  limit('sync', ['client', 'connection'], { limit: 1, windowMs: 1500 }),
  limit('trial', ['client'], { limit: 5, shadow: true }),
  limit('everybody', ['ip']),
  limit('shared', ['connection', 'client']),
]

const overridesOf = (overrides: readonly Override[]) =>
  new Map(overrides.map((override) => [overrideKey('p', override), override]))

const redis = await startRedis()

const STORES: readonly (readonly [
  string,
  () => Promise<Omit<InspectedStore, 'settle' | 'release' | 'ownRefusal'>>,
])[] = [
  ['memory', async () => createMemoryStore()],
  [
    'Redis',
    async () => {
      await redis.command('FLUSHALL')
      const store = createRedisStore({ topology: { url: redis.url }, prefix: 'p' })
      closeLater(() => store.close())
      await store.connect()
      return inspectedStore(store)
    },
  ],
]

describe.each(STORES)('the usage of a client, counted in %s', (_, open) => {
  async function opened(limits: readonly Limit[] = LIMITS, clientLimits: ClientLimits = new Map()) {
    const store = await open()
    const now = Date.now
    const calls = async (names: readonly string[], client: string, connection = 'c', times = 1) => {
      const chosen = limits.filter(({ name }) => names.includes(name))
      const apply = () => quotasOf(chosen, { client }, { params: { connection }, nowMs: now(), clientLimits })
      for (let i = 0; i < times; i++) {
        await store.charge(apply())
      }
    }
    const options = { store, reserves: new Reserves(), prefix: 'p', limits, clientLimits }
    return { store, calls, usage: createUsage(options), counters: createCounters(options) }
  }

  it('lists a share of a limit with further parts next to each counter, and resets them together', async () => {
    const share = limit('share', ['client', 'connection'], { limit: 4, windowMs: 1500, counts: 'sync' })
    const sync = limit('sync', ['client', 'connection'], { limit: 6, windowMs: 1500 })
    const { store, calls, counters } = await opened([limit('requests', ['client']), share, sync])
    await calls(['sync'], 'a', 'c1', 5)
    await calls(['share'], 'a', 'c2', 2)
    const { limits } = await counters.ofCaller(parseCaller('a'))
    expect(limits.map(({ name, key, limit, used }) => `${name} ${key} ${used}/${limit}`)).toEqual([
      'requests p:{a}:requests 0/10',
      'share p:{a}:sync:c1 5/4',
      'sync p:{a}:sync:c1 5/6',
      'share p:{a}:sync:c2 2/4',
      'sync p:{a}:sync:c2 2/6',
    ])
    expect(await counters.free(parseCaller('a'))).toBe(2)
    expect((await counters.ofCaller(parseCaller('a'))).limits).toMatchObject([{ name: 'requests' }])
    await store.close()
  })

  it('asks the store once a second for a key, also if a caller asks more often', async () => {
    const { store } = await opened()
    let asked = 0
    const counting = {
      peek(...args: Parameters<Store['peek']>) {
        asked++
        return store.peek(...args)
      },
    }
    const usage = createUsage({
      ...{ store: counting, prefix: 'p' },
      ...{ limits: LIMITS, clientLimits: new Map() },
    })
    await Promise.all(Array.from({ length: 100 }, () => usage.ofCaller({ client: 'often', ip: '' })))
    expect(asked).toBe(1)
  })

  it('shows the end of an own limit and of an override, and the limit that follows', async () => {
    const nowMs = Date.now()
    const at = (days: number) => nowMs + days * DAY_MS
    const iso = (days: number) => new Date(at(days)).toISOString()
    const [announced, unannounced] = [
      { announcedAt: at(-1), fromAt: at(4), limit: 12 },
      { announcedAt: at(1), fromAt: at(2), limit: 99 },
    ]
    const requests = limit('requests', ['client'], { changes: [unannounced, announced] })
    const own: ClientLimits = new Map([
      ['file', new Map([['requests', { limit: 50, untilAt: at(3) }]])],
      ['both', new Map([['requests', { limit: 50, untilAt: at(3) }]])],
      ['replaced', new Map([['requests', { limit: 50 }]])],
    ])
    const set = (client: string, days?: number) => ({
      ...{ caller: parseCaller(client), name: 'requests', limit: 70, setAt: at(-2) },
      ...(days !== undefined && { untilAt: at(days) }),
    })
    const overrides = overridesOf([
      set('set', 3),
      set('both', 5),
      set('replaced', 3),
      set('without end'),
      set('ended', -1),
    ])
    const store = await open()
    const reserves = new Reserves()
    const options = { store, reserves, prefix: 'p', limits: [requests], clientLimits: own, overrides }
    const [usage, counters] = [createUsage(options), createCounters(options)]
    const shownTo = async (client: string) => {
      const [shown] = (await counters.ofCaller(parseCaller(client))).limits
      const { limits } = await usage.ofCaller({ client, ip: '' })
      expect(limits[0]!.changes).toEqual(shown!.changes)
      return [shown!.limit, shown!.override, shown!.until, ...shown!.changes]
    }
    const change = { announced: iso(-1), from: iso(4), limit: 12 }
    expect(await shownTo('file')).toEqual([
      50,
      false,
      iso(3),
      { announced: null, from: iso(3), limit: 10 },
      change,
    ])
    expect(await shownTo('set')).toEqual([
      70,
      true,
      iso(3),
      { announced: iso(-2), from: iso(3), limit: 10 },
      change,
    ])
    expect(await shownTo('both')).toEqual([
      ...[70, true, iso(5), { announced: iso(-2), from: iso(5), limit: 12 }],
    ])
    expect(await shownTo('replaced')).toEqual([
      70,
      true,
      iso(3),
      { announced: iso(-2), from: iso(3), limit: 50 },
    ])
    expect(await shownTo('without end')).toEqual([70, true, null])
    expect(await shownTo('ended')).toEqual([10, false, null, change])
  })

  it('shows operators every key of the client, also those that do not begin with it', async () => {
    const untilAt = Date.now() + DAY_MS
    const own = new Map([['a b', new Map([['requests', { limit: 20, untilAt }]])]])
    const { calls, counters } = await opened(LIMITS, own)
    await calls(['requests', 'sync', 'everybody', 'shared'], 'a b', 'X')
    await calls(['requests', 'sync'], 'a b', 'Y')
    await calls(['requests', 'sync', 'shared'], 'a', 'X')
    const { caller, limits, truncated } = await counters.ofCaller(parseCaller('a b'))
    expect({ caller, truncated }).toEqual({ caller: 'client:a b', truncated: false })
    expect(limits).toMatchObject([
      {
        key: 'p:{a%20b}:requests',
        limit: 20,
        remaining: 18,
        until: new Date(untilAt).toISOString(),
        shadow: false,
      },
      { key: 'p:{a%20b}:trial', limit: 5, remaining: 5, until: null, shadow: true },
      { key: 'p:{a%20b}:sync:x', limit: 1, remaining: 0, windowSeconds: 1.5 },
      { key: 'p:{a%20b}:sync:y', limit: 1, remaining: 0 },
      { key: 'p:{x}:shared:a%20b', limit: 10, remaining: 9 },
    ])
  })

  it('shows operators every key with the rules in force for the client, and no key without a limit', async () => {
    const store = await open()
    const limits = LIMITS.map((limit) => ({ ...limit, windowMs: 60_000 }))
    const clientLimits = new Map([['acme', new Map([['shared', { limit: 3 }]])]])
    const overrides = overridesOf([{ caller: parseCaller('acme'), name: 'sync', limit: 9, setAt: 0 }])
    const counters = createCounters({
      store,
      reserves: new Reserves(),
      prefix: 'p',
      limits,
      clientLimits,
      overrides,
    })
    for (const key of ['p:{x}:shared:acme', 'p:{acme}:sync:x', 'p:{acme}:gone']) {
      await store.charge([{ name: 'any', key, limit: 10, windowMs: 60_000, shadow: false }])
    }
    const shown = await counters.ofCaller(parseCaller('acme'))
    expect(shown.limits.map(({ key, limit }) => [key, limit])).toEqual([
      ['p:{acme}:requests', 10],
      ['p:{acme}:trial', 5],
      ['p:{acme}:sync:x', 9],
      ['p:{x}:shared:acme', 3],
    ])
  })

  it('frees every key of the client, and no other keys', async () => {
    const { calls, usage, counters } = await opened()
    await calls(['requests', 'sync', 'shared'], 'a', 'X')
    await calls(['requests', 'shared'], '*', 'X')
    expect(await counters.free(parseCaller('a'))).toBe(3)
    expect((await usage.ofCaller({ client: 'a', ip: '' })).limits[0]).toMatchObject({ remaining: 10 })
    expect((await usage.ofCaller({ client: '*', ip: '' })).limits[0]).toMatchObject({ remaining: 9 })
    expect(await counters.free(parseCaller('a'))).toBe(0)
    expect(await counters.free(parseCaller('*'))).toBe(2)
  })

  it('shows at most `MAX_KEYS` keys, and if there are more', async () => {
    const { calls, counters } = await opened([LIMITS[0]!, { ...LIMITS[1]!, windowMs: 60_000 }])
    const connections = Array.from({ length: MAX_KEYS - 1 }, (_, i) => `c${i}`)
    await Promise.all(connections.map((connection) => calls(['sync'], 'a', connection)))
    const whole = await counters.ofCaller(parseCaller('a'))
    expect(whole).toMatchObject({ truncated: false })
    expect(whole.limits).toHaveLength(MAX_KEYS)
    await calls(['sync'], 'a', 'z')
    const part = await counters.ofCaller(parseCaller('a'))
    expect(part).toMatchObject({ truncated: true })
    expect(part.limits).toHaveLength(MAX_KEYS)
    expect(part.limits.map(({ key }) => key)).not.toContain('p:{a}:sync:z')
  })
})

it('rejects if the store does not answer', async () => {
  const store = createRedisStore({ topology: { url: '/nowhere/redis.sock' }, prefix: 'p' })
  await store.connect()
  const options = { store: inspectedStore(store), reserves: new Reserves(), prefix: 'p', limits: LIMITS }
  const [usage, counters] = [createUsage(options), createCounters(options)]
  await expect(usage.ofCaller({ client: 'a', ip: '' })).rejects.toThrow(
    /^Redis is not connected: connect ENOENT/,
  )
  await expect(counters.ofCaller(parseCaller('a'))).rejects.toThrow(/^Redis is not connected: connect ENOENT/)
  await expect(counters.free(parseCaller('a'))).rejects.toThrow(/^Redis is not connected: connect ENOENT/)
})
