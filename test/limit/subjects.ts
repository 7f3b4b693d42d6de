import { createMemoryStore } from '../../src/limit/memory/store.ts'
import { isAccess, type Quota } from '../../src/limit/limit.ts'
import { createLimiter } from '../../src/limit/limiter.ts'
import { CHARGE_SCRIPT } from '../../src/limit/redis/scripts.ts'
import type { RedisStoreOptions } from '../../src/limit/redis/connection.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import type { Store } from '../../src/limit/store.ts'
import { SYSTEM_CLOCK } from '../../src/runtime/clock.ts'
import type { Subject } from './store-contract.ts'

const READS_CLOCK = "call('TIME')"

/** charge.lua, with a clock that is read from a key with the same hash tag. Keys expire by Redis's own clock, so they last a minute longer. */
export const CLOCKED_SCRIPT = CHARGE_SCRIPT.replace(
  READS_CLOCK,
  "{ 0, call('GET', '{' .. KEYS[1]:match('{(.-)}') .. '}clock') or 0 }",
).replace('local ttl = ', 'local ttl = 60000 + ')
if (CLOCKED_SCRIPT === CHARGE_SCRIPT) throw new Error('charge.lua does not read its clock as expected.')

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
  const redis = createRedisStore({ topology, prefix: 'contract', script: CLOCKED_SCRIPT })
  await redis.connect()
  // As the fallback does, which every gateway has before Redis.
  const store = Object.assign(redis, {
    giveBack(quota: Quota, endsAt: number): void {
      const addition = { quota, calls: [], spreadMs: 0, back: { calls: 1, endsAt }, onEnd() {} }
      redis.peek([quota], [addition]).catch(() => {})
    },
  })
  return {
    store,
    async setClock(us, tag) {
      await run(tag, ['SET', `{${tag}}clock`, String(us)])
    },
    close: () => store.close(),
  }
}

/** The same subject behind a limiter with its cache of refusals. */
export function throughLimiter(subject: Subject): Subject {
  let us = 0
  const limiter = createLimiter(subject.store, undefined, { now: () => us / 1000 })
  const store: Store = {
    async charge(quotas) {
      const { admitted, allowances, mode, decidedAt } = await limiter.decide(
        quotas.filter((quota) => !isAccess(quota)),
      )
      return { admitted, allowances, mode, decidedAt: decidedAt! }
    },
    peek: (quotas) => subject.store.peek(quotas),
    giveBack(quota, endsAt) {
      subject.store.giveBack(quota, endsAt)
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
    close: () => subject.close(),
  }
}
