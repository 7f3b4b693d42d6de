import { type FallbackStore, withFallback } from '../../src/limit/fallback/store.ts'
import { Failure, Refusal } from '../../src/errors.ts'
import type { ClientLimits, Limit } from '../../src/policy/limit.ts'
import { proofQuota } from '../../src/policy/apply.ts'
import { compileLimits } from '../policy/quotas.ts'
import { createLimiter } from '../../src/limit/limiter.ts'
import type { Calendar, Quota } from '../../src/limit/quota.ts'
import { UNITS_MS } from '../../src/policy/calendar.ts'
import { type Facts, NO_FACTS } from '../../src/policy/facts.ts'
import type { Overrides } from '../../src/policy/overrides.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import type { Deployment, Link } from './deployment.ts'
import { createClient } from './network.ts'
import type { World } from './time.ts'

export const TIMEOUT_MS = 100
/** Time for which a proof is valid. */
export const PROOF_MS = 60_000

/** The response to a caller. */
export interface Told {
  readonly admitted: boolean
  readonly retryAfterMs: number
  readonly refusedBy: string | undefined
  readonly isReplay: boolean
  /** True for a 503: nothing decided the call. */
  readonly isUnavailable: boolean
  readonly mode: string
  /** Settles an admitted call: `usedOf` returns the points that it used of a quota, undefined if its reserve stays. */
  settle(usedOf: (quota: Quota) => number | undefined): void
  /** Ends an admitted call, which is in progress until then; `mayGoOn`: its caller leaves. */
  release(mayGoOn?: boolean): void
}

const UNAVAILABLE: Told = {
  ...{ admitted: false, retryAfterMs: 0, refusedBy: undefined, isReplay: false },
  ...{ isUnavailable: true, mode: 'deny', settle() {}, release() {} },
}

const factsOf = (token: string | undefined): Facts =>
  token === undefined ? NO_FACTS : { ...NO_FACTS, head: { authorization: [`Bearer ${token}`] } }

/** Passes on every error but a 503. */
function unavailable(error: unknown): undefined {
  if (!(error instanceof Failure)) throw error
}

/** A calendar of short periods. */
export function shortCalendar(periodMs: number): Calendar {
  const startOf = (epochMs: number): number => Math.floor(epochMs / periodMs) * periodMs
  return {
    ...{ unit: 'minute', timezone: 'UTC' },
    periodAt: (epochMs) => ({ startMs: startOf(epochMs), endMs: startOf(epochMs) + periodMs }),
  }
}

export type Gateway = ReturnType<typeof startGateway>

/** Starts the limiter of one gateway, with its stores, on the virtual network. */
export function startGateway(
  world: World,
  link: Link,
  deployment: Deployment,
  limits: () => readonly Limit[],
  overrides: Overrides,
  clientLimits?: ClientLimits,
) {
  const loop = world.createLoop()
  const { clock } = loop
  const client = createClient(world, loop, link, deployment)
  const topology = { url: 'redis://simulated' }
  const redis = createRedisStore({
    ...{ topology, id: loop.name, prefix: 's', timeoutMs: TIMEOUT_MS, clock, open: client.open },
    onLost: () => store.check(),
    onLoss: (server) => store.restoreLeases(server),
  })
  const store: FallbackStore = withFallback(redis, { onOutage: 'local', clock })
  const limiter = createLimiter(store, undefined, clock)
  let isStarted = false
  void redis
    .connect()
    .then((isConnected) => (isConnected ? undefined : store.begin()))
    .then(() => (isStarted = true))
  const failures = new Set<() => void>()
  /** The functions that apply limits, by the names of these. */
  const applying = new Map<string, ReturnType<typeof compileLimits>>()
  let compiled: readonly Limit[] = []

  /** Returns the quotas of a call under the limits of these names. */
  function quotasFor(
    caller: string,
    names: readonly string[],
    cost?: number,
    token?: string,
  ): readonly Quota[] {
    if (compiled !== limits()) {
      compiled = limits()
      applying.clear()
    }
    const chosen = compiled.filter(({ name }) => names.includes(name))
    const quotasOf =
      applying.get(names.join()) ?? compileLimits(chosen, { prefix: 's', overrides, clientLimits })
    applying.set(names.join(), quotasOf)
    const applied = quotasOf({ client: caller, ip: '::1' }, factsOf(token), clock.date())
    if (applied instanceof Refusal) throw new Error(applied.message)
    return applied
      .map((quota) => (cost === undefined || quota.isConcurrent ? quota : { ...quota, cost }))
      .map((quota) =>
        quota.calendar === undefined || Object.values(UNITS_MS).includes(quota.windowMs)
          ? quota
          : { ...quota, calendar: shortCalendar(quota.windowMs) },
      )
  }

  async function decide(
    caller: string,
    names: readonly string[],
    proof?: string,
    cost?: number,
    token?: string,
  ): Promise<Told> {
    const quotas = quotasFor(caller, names, cost, token)
    const used = proof === undefined ? undefined : proofQuota('s', caller, proof, PROOF_MS)
    const decision = await Promise.resolve(limiter.decide(quotas, used)).catch(unavailable)
    if (decision === undefined) return UNAVAILABLE
    const { admitted, refusedBy, replayed, mode } = decision
    return {
      settle: (usedOf) => (loop.isStopped ? undefined : limiter.settle(quotas, decision, usedOf)),
      release: (mayGoOn) => (loop.isStopped ? undefined : limiter.release(quotas, decision, mayGoOn)),
      ...{ admitted, retryAfterMs: refusedBy?.retryAfterMs ?? 0, refusedBy: refusedBy?.name },
      ...{ isReplay: replayed === true, isUnavailable: false, mode },
    }
  }

  return {
    loop,
    client,
    /** Resolves with the response; with nothing if the gateway ends before. */
    call: (
      caller: string,
      names: readonly string[],
      proof?: string,
      cost?: number,
      token?: string,
    ): Promise<Told | undefined> =>
      new Promise((resolve, reject) => {
        const fail = (): void => resolve(undefined)
        if (loop.isStopped || !isStarted) return fail()
        failures.add(fail)
        world.at(
          world.now(),
          () =>
            void decide(caller, names, proof, cost, token)
              .then(resolve, reject)
              .finally(() => failures.delete(fail)),
          loop,
        )
      }),
    /** Reads the limits of a caller, of whose calls each would take `cost` points; charges nothing. */
    read: (caller: string, names: readonly string[], cost?: number) =>
      store.peek(quotasFor(caller, names, cost)),
    /** Resets the counters of a caller's limits. */
    async reset(caller: string, names: readonly string[]): Promise<void> {
      const named = quotasFor(caller, names).map(({ key }) => key)
      await store.reset({ named, glob: undefined, matches: (key) => named.includes(key) })
      limiter.forget()
    },
    /** Ends the gateway; `isGraceful` gives it time to finish. */
    async end(isGraceful: boolean): Promise<void> {
      if (isGraceful) await store.close()
      loop.stop()
      client.cut(false)
      for (const fail of failures) fail()
    },
  }
}
