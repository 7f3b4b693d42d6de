import { afterEach, describe, expect, test } from 'vitest'
import { Failure } from '../../../src/errors.ts'
import { proofQuota } from '../../../src/policy/apply.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import type { OutageChange } from '../../../src/limit/fallback/breakers.ts'
import { type FallbackOptions, type FallbackStore, withFallback } from '../../../src/limit/fallback/store.ts'
import {
  type Charge,
  DamagedKeyError,
  type OnReply,
  type RemoteStore,
  type Settlements,
  TimeoutError,
} from '../../../src/limit/store.ts'
import { until } from '../../helpers/wait.ts'

function quota(key = 'p:{a}:x', limit = 10): Quota {
  return { name: 'x', key, limit, windowMs: 60_000, shadow: false }
}

/** Returns the answer of a store that admits a call, with `remaining` calls left. */
function admitted(remaining = 9): Charge {
  const allowance = { name: 'x', limit: 10, windowMs: 60_000, remaining, resetAt: 0, shadow: false, own: 0 }
  const allowances = [
    { ...allowance, used: 10 - remaining, resetAfterMs: 60_000, retryAfterMs: 0, admitted: true },
  ]
  return { admitted: true, allowances, proof: { ...allowances[0]!, name: 'proof' }, mode: 'store' }
}
const ADMITTED = admitted()

const opened: FallbackStore[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()))
})

/** Makes 20 calls of a quota, and returns the number of admitted calls. */
async function admittedOf(store: FallbackStore, limited = quota()): Promise<number> {
  let count = 0
  for (let i = 0; i < 20; i++) if ((await store.charge([limited])).admitted) count++
  return count
}

/** Creates a store with the behaviour that the test sets, and its fallback. */
function setUp(options: Partial<FallbackOptions> = {}) {
  const behaviour = {
    charge: (): Promise<Charge> => Promise.resolve(ADMITTED),
    gateways: 1,
    reset: () => Promise.resolve(0),
    keys: (): Promise<readonly string[]> => Promise.resolve([]),
    probe: (): Promise<void> => Promise.reject(new Error('still down')),
    settle: (): Promise<void> => Promise.resolve(),
  }
  let onReply: OnReply = () => {}
  const asked: string[] = []
  const servers: string[] = []
  const probed: string[] = []
  const reconnected: string[] = []
  const changes: OutageChange[] = []
  /** The keys whose calls were merged. */
  const merged: string[] = []
  const settled: Settlements[] = []
  const failReset = () => (behaviour.reset = () => Promise.reject(new Error('gone')))
  /** Makes one request, and reports its outcome as the Redis store does. */
  async function ask(key: string): Promise<Charge> {
    asked.push(key)
    const server = failing.server(key)
    return await behaviour.charge().then(
      (charge) => {
        onReply(server, undefined)
        return charge
      },
      (error: Error) => {
        if (!(error instanceof DamagedKeyError)) onReply(server, error)
        throw error
      },
    )
  }
  const failing: RemoteStore = {
    listen: (listener) => void (onReply = listener),
    charge: (quotas) => ask(quotas[0]!.key),
    peek: async (quotas) => (await ask(quotas[0]!.key)).allowances,
    async merge({ quota }) {
      const charge = await ask(quota.key)
      merged.push(quota.key)
      return charge
    },
    settle(settlements) {
      settled.push(settlements)
      return behaviour.settle()
    },
    keys: () => behaviour.keys(),
    reset: () => behaviour.reset(),
    gateways: () => behaviour.gateways,
    close: async () => {},
    server: (key) => key.slice(0, 5),
    servers: () => servers,
    async probe(server) {
      probed.push(server)
      await behaviour.probe()
    },
    endLeases: () => Promise.resolve(),
    renewLeases: () => Promise.resolve(),
    slot: () => 0,
    id: 'gateway',
    spreadMs: () => 0,
    dateAt: () => undefined,
    reconnect: (server) => void reconnected.push(server),
    isFull: ({ message }) => message.startsWith('OOM'),
  }
  const store = withFallback(failing, {
    onOutage: 'local',
    probeEveryMs: 5,
    onChange: (change) => changes.push(change),
    ...options,
  })
  opened.push(store)
  return { store, behaviour, asked, servers, probed, reconnected, changes, merged, settled, failReset }
}

const fails = () => Promise.reject(new Error('READONLY You can’t write against a read only replica.'))
const isSilent = () => Promise.reject(new TimeoutError('No answer within 50 ms.'))
/** Makes calls until the store is down. */
async function trip(store: FallbackStore, ...quotas: Quota[]): Promise<void> {
  await until('the store is down', async () => {
    await store.charge(quotas.length > 0 ? quotas : [quota()])
    return store.mode() !== 'store'
  })
}

describe('a store with a fallback', () => {
  test('lets no call wait for one that is settled, and settles all that end meanwhile in one message', async () => {
    const { store, behaviour, asked, settled } = setUp({ probeEveryMs: 600_000 })
    const own = { ...quota(), cost: 5 }
    const charge = { ...(await store.charge([own])), chargedUs: Date.now() * 1000 }
    const answers: (() => void)[] = []
    behaviour.settle = () => new Promise((resolve) => answers.push(resolve))
    const ended = Array.from({ length: 3 }, () => store.settle(charge, [{ quota: own, points: -1 }]))
    await until('they are sent', () => answers.length === 1)
    ended.push(store.settle(charge, [{ quota: own, points: 2 }]))
    await store.charge([own])
    expect(asked.length).toBe(2)
    answers[0]!()
    await until('the next are sent', () => answers.length === 2)
    answers[1]!()
    for (const one of ended) await one
    expect(settled.map(({ all }) => all.map(({ points }) => points))).toEqual([[-1, -1, -1], [2]])
  })

  test('decides while it answers', async () => {
    const { store, changes } = setUp()
    for (let i = 0; i < 10; i++) expect((await store.charge([quota()])).mode).toBe('store')
    expect(store.mode()).toBe('store')
    expect(changes).toEqual([])
  })

  test('is down after three failures over some time', async () => {
    const { store, behaviour, asked, changes } = setUp({ probeEveryMs: 200 })
    behaviour.charge = isSilent
    behaviour.probe = isSilent
    const startedAt = performance.now()
    const burst = await Promise.all(Array.from({ length: 20 }, async () => store.charge([quota()])))
    expect(burst.map(({ admitted, mode }) => [admitted, mode])).toEqual(
      Array.from({ length: 20 }, (_, i) => [i < 10, 'local']),
    )
    expect(asked).toHaveLength(20)
    if (performance.now() - startedAt < 190) expect(store.mode()).toBe('store')
    await trip(store)
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(199)
    expect(changes).toMatchObject([
      { mode: 'local', degraded: true, cause: { message: 'No answer within 50 ms.' } },
    ])
    asked.length = 0
    await store.charge([quota()])
    expect(asked).toEqual([])
  })

  test('decides again as soon as a probe succeeds, and reports that once', async () => {
    const { store, behaviour, probed, changes } = setUp()
    behaviour.charge = fails
    await trip(store, quota('p:{k}:x'))
    await until('several probes failed', () => probed.length > 3)
    expect(store.mode()).toBe('local')
    behaviour.charge = () => Promise.resolve(ADMITTED)
    behaviour.probe = () => Promise.resolve()
    await until('the store decides', () => store.mode() === 'store')
    expect((await store.charge([quota()])).mode).toBe('store')
    expect(new Set(probed)).toEqual(new Set(['p:{k}']))
    expect(changes.map(({ mode, degraded }) => [mode, degraded])).toEqual([
      ['local', true],
      ['store', false],
    ])
  })

  test('stays up without three failures in a row', async () => {
    const { store, behaviour, changes } = setUp({ onOutage: 'allow' })
    behaviour.probe = () => Promise.resolve()
    for (let i = 0; i < 10; i++) {
      behaviour.charge = i % 3 === 2 ? () => Promise.resolve(ADMITTED) : fails
      await store.charge([quota()])
      await new Promise((resolve) => void setTimeout(resolve, 6))
    }
    expect(changes).toEqual([])
  })

  test('replaces a silent connection, and keeps a connection that answers with errors', async () => {
    const silent = setUp()
    silent.behaviour.charge = isSilent
    silent.behaviour.probe = isSilent
    await trip(silent.store)
    expect(silent.reconnected).toEqual(['p:{a}'])
    const failing = setUp()
    failing.behaviour.charge = fails
    await trip(failing.store)
    expect(failing.reconnected).toEqual([])
  })

  test('decides for the keys of the other servers when a server fails', async () => {
    const { store, behaviour, asked, changes } = setUp()
    behaviour.charge = fails
    await trip(store, quota('p:{a}:x'))
    behaviour.charge = () => Promise.resolve(ADMITTED)
    asked.length = 0
    expect((await store.charge([quota('p:{b}:x')])).mode).toBe('store')
    expect((await store.charge([quota('p:{a}:x')])).mode).toBe('local')
    expect(asked).toEqual(['p:{b}:x'])
    expect(store.mode()).toBe('local')
    expect(changes).toMatchObject([{ server: 'p:{a}' }])
  })

  test('divides the limits by the instances: at least 1 call, and 0 calls of a limit of 0', async () => {
    const { store, behaviour } = setUp({ instances: 4 })
    behaviour.gateways = 100
    behaviour.charge = fails
    const admitted = (limit: number) => admittedOf(store, quota(`p:{${limit}}:x`, limit))
    expect([await admitted(10), await admitted(3), await admitted(0)]).toEqual([2, 1, 0])
  })

  test('divides points, too: at least those of one call that the whole limit admits', async () => {
    const { store, behaviour } = setUp({ instances: 4 })
    behaviour.charge = fails
    const points = (key: string, cost: number) => ({ ...quota(key, 10), cost })
    const admitted = async (key: string, cost: number) =>
      (await store.charge([points(`p:{${key}}:x`, cost)])).admitted
    expect([await admitted('a', 4), await admitted('a', 1)]).toEqual([true, false])
    expect([await admitted('b', 1), await admitted('b', 4), await admitted('b', 1)]).toEqual([
      true,
      false,
      true,
    ])
    expect(await admitted('c', 11)).toBe(false)
  })

  test('divides the limits at least by the processes of this gateway, if the store was never available', async () => {
    const { store, behaviour } = setUp({ processes: 4 })
    behaviour.charge = fails
    expect(await admittedOf(store)).toBe(2)
  })

  test('lets a shadow limit refuse nothing, before, in and after an outage of the store', async () => {
    const { store, behaviour } = setUp({ onOutage: 'deny' })
    behaviour.charge = fails
    const live: Quota = { ...quota(), onOutage: 'local' }
    const shadow: Quota = { ...quota('p:{a}:shadow'), shadow: true }
    expect(await store.charge([live, shadow])).toMatchObject({ admitted: true, mode: 'local' })
    expect(await store.charge([shadow])).toMatchObject({ admitted: true })
  })

  test('admits every call under allow, and reports that nothing was counted', async () => {
    let decisions = 0
    const { store, behaviour } = setUp({ onOutage: 'allow', onFallback: () => decisions++ })
    await store.charge([quota()])
    expect(decisions).toBe(0)
    behaviour.charge = fails
    for (let i = 0; i < 20; i++) {
      expect(await store.charge([quota()])).toMatchObject({ admitted: true, allowances: [], mode: 'allow' })
    }
    expect(decisions).toBe(20)
    // Also of a caller that is blocked.
    expect(await store.charge([quota('p:{a}:x', 0)])).toMatchObject({ admitted: true })
    await trip(store)
    expect(store.mode()).toBe('allow')
  })

  test('returns a 503 with Retry-After under deny, with the cause only in the log', async () => {
    const { store, behaviour } = setUp({ onOutage: 'deny' })
    behaviour.charge = fails
    for (let i = 0; i < 5; i++) {
      const error = await Promise.resolve(store.charge([quota()])).catch((error: unknown) => error)
      expect(error).toBeInstanceOf(Failure)
      expect(error).toMatchObject({ refusal: { status: 503, headers: { 'Retry-After': '1' } } })
      expect((error as Error).message).not.toContain('READONLY')
      // Probes fail too, so that the breaker may be open at the second call.
      if (i === 0)
        expect((error as Error).cause).toMatchObject({
          message: expect.stringContaining('READONLY') as string,
        })
    }
  })

  test.each(['local', 'allow'] as const)('accepts a proof only once, under %s too', async (onOutage) => {
    const { store, behaviour } = setUp({ onOutage })
    behaviour.charge = fails
    const proof = proofQuota('p', 'a', 'proof', 60_000)
    expect(await store.charge([quota(), proof])).toMatchObject({ admitted: true, mode: onOutage })
    expect(await store.charge([quota(), proof])).toMatchObject({ admitted: false, mode: onOutage })
    await store.close()
  })

  test('divides what the store last reported as remaining by the gateways that it counted', async () => {
    const { store, behaviour } = setUp({ probeEveryMs: 600_000 })
    const locallyAdmitted = async (key: string, remaining: number, gateways: number) => {
      behaviour.gateways = gateways
      behaviour.charge = () => Promise.resolve(admitted(remaining))
      await store.charge([quota(key)])
      behaviour.charge = fails
      return await admittedOf(store, quota(key))
    }
    expect(await locallyAdmitted('p:{a}:1', 3, 1)).toBe(3)
    expect(await locallyAdmitted('p:{a}:2', 0, 1)).toBe(0)
    expect(await locallyAdmitted('p:{a}:3', 8, 4)).toBe(2)
    expect(await locallyAdmitted('p:{a}:4', 1, 4)).toBe(1)
  })

  test('gets the calls of limits before proofs, in the background', async () => {
    const { store, behaviour, merged } = setUp()
    behaviour.charge = fails
    await store.charge([quota(), proofQuota('p', 'a', 'proof', 60_000)])
    behaviour.charge = () => Promise.resolve(ADMITTED)
    behaviour.probe = () => Promise.resolve()
    await until('both are merged', () => merged.length === 2)
    expect(merged).toEqual(['p:{a}:x', 'p:{a}:~proof:proof'])
  })

  test('stays up, and reports the key, if a key is damaged', async () => {
    const damaged: string[] = []
    const { store, behaviour } = setUp({ onDamaged: (key) => damaged.push(key) })
    for (let i = 0; i < 10; i++) {
      behaviour.charge = () => Promise.reject(new DamagedKeyError('p:{a}:x'))
      expect(await store.charge([quota()])).toMatchObject({ mode: 'local' })
      await new Promise((resolve) => void setTimeout(resolve, 2))
    }
    expect(store.mode()).toBe('store')
    expect(new Set(damaged)).toEqual(new Set(['p:{a}:x']))
  })

  test('keeps the local counters if the store cannot free the keys', async () => {
    const { store, behaviour, failReset } = setUp({ probeEveryMs: 600_000 })
    behaviour.charge = fails
    for (let i = 0; i < 10; i++) await store.charge([quota()])
    failReset()
    const all = { named: [], glob: undefined, matches: () => true }
    await expect(store.reset(all)).rejects.toThrow('gone')
    expect(await store.charge([quota()])).toMatchObject({ admitted: false, mode: 'local' })
  })

  test('shows operators its counters, and in an outage those of this gateway with its part of each limit', async () => {
    const { store, behaviour } = setUp({ instances: 2 })
    const ALL = { named: [], glob: undefined, matches: () => true }
    behaviour.keys = () => Promise.resolve(['p:{b}:x'])
    const [found] = await store.inspect([quota()])
    expect(found).toMatchObject({ mode: 'store', allowance: { limit: 10, remaining: 9 } })
    expect(await store.keys(ALL, 9)).toEqual(['p:{b}:x'])
    behaviour.charge = fails
    behaviour.keys = fails
    await trip(store, quota())
    const [own] = await store.inspect([quota()])
    expect(own).toMatchObject({ mode: 'local', allowance: { limit: 10, part: 5 } })
    expect(own!.allowance.used).toBeGreaterThan(0)
    expect(await store.keys(ALL, 9)).toEqual(['p:{a}:x'])
    const [denied] = await store.inspect([{ ...quota('p:{c}:x'), onOutage: 'deny' }])
    expect(denied).toMatchObject({ mode: 'deny', allowance: { used: 0 } })
  })

  test('does not show operators only its own keys, if the store is up and a scan fails', async () => {
    const { store, behaviour } = setUp()
    behaviour.keys = isSilent
    await expect(store.keys({ named: [], glob: '*', matches: () => true }, 9)).rejects.toThrow(
      'No answer within 50 ms.',
    )
  })

  test('shows operators no counters for no quotas', async () => {
    const { store } = setUp()
    expect(await store.inspect([])).toEqual([])
  })

  test('is read from the local counters under local, as unused under allow, and cannot be read under deny', async () => {
    const local = setUp()
    local.behaviour.charge = fails
    for (let i = 0; i < 4; i++) await local.store.charge([quota()])
    expect(await local.store.peek([quota()])).toMatchObject([{ remaining: 6 }])
    const allow = setUp({ onOutage: 'allow' })
    allow.behaviour.charge = fails
    expect(await allow.store.peek([quota()])).toMatchObject([{ remaining: 10, limit: 10 }])
    const deny = setUp({ onOutage: 'deny' })
    deny.behaviour.charge = fails
    await expect(deny.store.peek([quota()])).rejects.toMatchObject({ refusal: { status: 503 } })
  })

  describe('without callers', () => {
    test('is probed at intervals, and the begin and the end of an outage are reported', async () => {
      const { store, behaviour, servers, probed, changes } = setUp({ idleEveryMs: 20 })
      behaviour.probe = () => Promise.resolve()
      servers.push('p:{a}', 'p:{b}')
      await until('both servers are probed', () => new Set(probed).size === 2)
      expect(changes).toEqual([])
      behaviour.probe = isSilent
      await until('the outage is reported', () => store.mode() === 'local')
      behaviour.probe = () => Promise.resolve()
      await until('the end of the outage is reported', () => store.mode() === 'store')
      expect(changes.filter(({ server }) => server === 'p:{a}').map(({ mode }) => mode)).toEqual([
        'local',
        'store',
      ])
    })

    test('is probed as soon as a connection is lost, until it answers or has failed three times', async () => {
      const { store, behaviour, servers, probed, changes } = setUp({ idleEveryMs: 600_000, probeEveryMs: 20 })
      servers.push('p:{a}')
      behaviour.probe = () => (probed.length < 3 ? Promise.reject(new Error('gone')) : Promise.resolve())
      store.check()
      await until('it is back', () => probed.length === 3)
      await new Promise((resolve) => setImmediate(resolve))
      expect(changes).toEqual([])
      behaviour.probe = () => Promise.reject(new Error('gone'))
      store.check()
      await until('the outage is reported', () => changes.length > 0)
      expect(probed.length).toBeGreaterThanOrEqual(6)
    })

    test('is probed as soon as a question fails, so that the outage is seen without another one', async () => {
      const { store, behaviour, changes } = setUp({ idleEveryMs: 600_000, probeEveryMs: 20 })
      behaviour.charge = fails
      behaviour.probe = fails
      await store.peek([quota()])
      await until('the outage is reported', () => changes.length > 0, 20_000)
      expect(store.mode()).toBe('local')
    })

    test('is not probed and does not go down earlier if connections are lost repeatedly', async () => {
      const { store, behaviour, servers, changes } = setUp({ probeEveryMs: 20, idleEveryMs: 600_000 })
      servers.push('p:{a}')
      const instants: number[] = []
      const gone = () => {
        instants.push(performance.now())
        return Promise.reject(new Error('gone'))
      }
      behaviour.probe = gone
      const checks = async () => {
        for (let i = 0; i < 5; i++) {
          store.check()
          await new Promise((resolve) => setImmediate(resolve))
        }
      }
      await checks()
      await until('it is down, and still probed', () => changes.length > 0 && instants.length > 5)
      const gaps = instants.map((at, i) => at - (instants[i - 1] ?? Number.NEGATIVE_INFINITY))
      // A timer of Node.js may be a millisecond early.
      expect(Math.min(...gaps)).toBeGreaterThan(18)

      behaviour.probe = () => Promise.resolve()
      await until('it is back', () => changes.length > 1)
      behaviour.probe = gone
      const before = instants.length
      await checks()
      await store.close()
      await new Promise((resolve) => setTimeout(resolve, 60))
      expect(instants.length - before).toBe(1)
    })

    test('is not used from the start if its first probe fails', async () => {
      const { store, behaviour, servers, asked, changes } = setUp({ probeEveryMs: 600_000 })
      servers.push('p:{a}', 'p:{b}')
      behaviour.probe = () => Promise.resolve()
      await store.begin()
      expect(store.mode()).toBe('store')
      behaviour.probe = () => Promise.reject(new Error('not there'))
      await store.begin()
      expect((await store.charge([quota()])).mode).toBe('local')
      expect(asked).toEqual([])
      expect(changes).toMatchObject([
        { server: 'p:{a}', mode: 'local', cause: { message: 'not there' } },
        { server: 'p:{b}', mode: 'local' },
      ])
    })

    test('is not used after it was found misconfigured, until it answers a probe', async () => {
      const { store, behaviour, servers, asked, changes } = setUp()
      servers.push('p:{a}')
      store.fail(new Error('a replica'))
      store.fail(new Error('a replica'))
      expect((await store.charge([quota()])).mode).toBe('local')
      expect(asked).toEqual([])
      behaviour.probe = () => Promise.resolve()
      await until('it decides', () => store.mode() === 'store')
      expect(changes.map(({ mode }) => mode)).toEqual(['local', 'store'])
    })

    test('does not cause an outage after it has left the cluster, even if it failed just before', async () => {
      const { store, behaviour, servers, probed, changes } = setUp({ probeEveryMs: 30, idleEveryMs: 10 })
      behaviour.probe = () => (probed.at(-1) === 'p:{a}' ? fails() : Promise.resolve())
      servers.push('p:{a}', 'p:{b}')
      const times = (key: string) => probed.filter((server) => server === key).length
      await until('it fails', () => times('p:{a}') === 1)
      servers.shift()
      const before = times('p:{b}')
      await until('the other is probed often', () => times('p:{b}') > before + 20)
      expect(changes).toEqual([])
      expect(store.mode()).toBe('store')
    })

    test('is not probed after it has left the cluster', async () => {
      const { behaviour, servers, probed } = setUp({ idleEveryMs: 10 })
      behaviour.probe = () => Promise.resolve()
      servers.push('p:{a}', 'p:{b}')
      await until('both servers are probed', () => new Set(probed).size === 2)
      servers.shift()
      probed.length = 0
      await until('the other is still probed', () => probed.length > 5)
      expect(new Set(probed)).toEqual(new Set(['p:{b}']))
    })
  })
})
