import { createMemoryStore } from '../../src/limit/memory/store.ts'
import type { Quota } from '../../src/limit/quota.ts'
import { createLimiter } from '../../src/limit/limiter.ts'
import type { RedisStoreOptions } from '../../src/limit/redis/store-options.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import type { Charged, Correction, Merge, OwnCalls, Settlements, Store } from '../../src/limit/store.ts'
import { SYSTEM_CLOCK } from '../../src/runtime/clock.ts'
import type { Subject } from './store-contract.ts'

const READS_CLOCK = "call('TIME')"

/** Lets a script read its clock from a key with the same hash tag. Keys expire by Redis's own clock, so they last a minute longer. */
export const clocked = (script: string): string =>
  script
    .replace(READS_CLOCK, "{ 0, call('GET', '{' .. KEYS[#KEYS]:match('{(.-)}') .. '}clock') or 0 }")
    .replaceAll("'PX', ", "'PX', 60000 + ")
    .replaceAll(/call\('PEXPIRE', ([\w.]+), /g, "call('PEXPIRE', $1, 60000 + ")

/** A memory store whose clocks the test sets. */
export function memorySubject(): Subject {
  let us = 0
  // Without sweeps, which have tests of their own: swept calls are missing if a window grows.
  const store = createMemoryStore({ ...SYSTEM_CLOCK, now: () => us / 1000, date: () => us / 1000 }, 0)
  return {
    store,
    setClock(now) {
      us = now
    },
    close: () => store.close(),
  }
}

/** A Redis store whose script reads the test's clock; `run` runs a command on the server of a tag. */
export async function redisSubject(
  topology: RedisStoreOptions['topology'],
  run: (tag: string, command: readonly string[]) => Promise<unknown>,
): Promise<Subject> {
  const redis = createRedisStore({ topology, prefix: 'contract', edit: clocked })
  await redis.connect()
  let [settlements, leases] = [0, 0]
  let merging: Promise<unknown> = Promise.resolve()
  const { merge, charge, settle } = redis
  const store = Object.assign(redis, {
    charge: (quotas: readonly Quota[], own?: OwnCalls, lease?: string) =>
      charge(quotas, own, lease ?? (hasLeases(quotas) ? `${++leases}:test` : undefined)),
    release(quotas: readonly Quota[], id: string): void {
      for (const quota of quotas) {
        if (quota.isConcurrent) merging = Promise.allSettled([merging, redis.endLeases([{ quota, id }])])
      }
    },
    ownRefusal: () => undefined,
    merge(own: Merge) {
      const merged = merge(own)
      merging = Promise.allSettled([merging, merged])
      return merged
    },
    settle(...given: [Settlements] | [Charged, readonly Correction[]]) {
      const settled = settle(isMessage(given) ? given[0] : messageOf(++settlements, ...given))
      merging = Promise.allSettled([merging, settled])
      return settled
    },
  })
  return {
    store,
    async setClock(us, tag) {
      await run(tag, ['SET', `{${tag}}clock`, String(us)])
    },
    merged: () => merging,
    close: () => store.close(),
  }
}

/** True for the settlements of a fallback, which every gateway has before Redis. */
const isMessage = (given: readonly unknown[]): given is [Settlements] => given.length === 1

/** Returns the settlements that a fallback would send. */
const messageOf = (
  number: number,
  { chargedUs }: Charged,
  corrections: readonly Correction[],
): Settlements => ({
  number,
  all: corrections.map((correction) => ({ ...correction, chargedUs: chargedUs! })),
})

const hasLeases = (quotas: readonly Quota[]): boolean => quotas.some(({ isConcurrent }) => isConcurrent)

/** The same subject behind a limiter with its cache of refusals. */
export function throughLimiter(subject: Subject): Subject {
  let us = 0
  const limiter = createLimiter(subject.store, undefined, { now: () => us / 1000 })
  const store: Store = {
    async charge(quotas) {
      const { admitted, allowances, mode, decidedAt, chargedUs, lease } = await limiter.decide(quotas)
      return { admitted, allowances, proof: undefined, mode, decidedAt: decidedAt!, chargedUs, lease }
    },
    release: (quotas, lease) => subject.store.release(quotas, lease),
    ownRefusal: (quota) => subject.store.ownRefusal(quota),
    peek: (quotas) => subject.store.peek(quotas),
    settle(charge, corrections) {
      void subject.store.settle(charge, corrections)
      limiter.forget()
    },
    keys: (filter) => subject.store.keys(filter),
    async reset(filter) {
      const freed = await subject.store.reset(filter)
      limiter.forget()
      return freed
    },
    close: () => subject.store.close(),
  }
  return {
    store,
    async setClock(now, tag) {
      us = now
      await subject.setClock(now, tag)
    },
    ...(subject.merged && { merged: subject.merged }),
    close: () => subject.close(),
  }
}
