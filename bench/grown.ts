/**
 * Redis's time for a decision as a key grows, compared with a script that does no more than an exact window
 * needs. Cases alternate, and the lowest quarter counts: other work on the machine only adds to a time.
 */
import type { ChainableCommander, Redis } from 'ioredis'
import { CHARGE_SCRIPT, SETTLE_SCRIPT } from '../src/limit/redis/scripts.ts'
import type { Bench } from './measure.ts'
import { markdown } from './report.ts'

const ROUNDS = 7
const KEYS = 96
const NO_DEADLINE = Number.MAX_SAFE_INTEGER
const HOUR_US = 3_600_000_000
const RULE = `1 1000 ${HOUR_US} 0`

/** A ring of the instants of the calls in the window, of one plain limit. */
const RING_SCRIPT = `
local time = redis.call('TIME')
local now, limit, window = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local key, first, held, oldest = KEYS[1], 0, 0, now
local function instant(index)
  local at = 8 + index * 7
  return struct.unpack('>I7', redis.call('GETRANGE', key, at, at + 6))
end
local header = redis.call('GETRANGE', key, 0, 7)
if header ~= '' then
  first, held = struct.unpack('>I4I4', header)
  oldest = instant(first)
  while held > 0 and oldest <= now - window do
    first, held = (first + 1) % limit, held - 1
    oldest = held > 0 and instant(first) or now
  end
end
if held == limit then return { now, 0, held, oldest + window } end
redis.call('SETRANGE', key, 8 + (first + held) % limit * 7, struct.pack('>I7', now))
redis.call('SETRANGE', key, 0, struct.pack('>I4I4', first, held + 1))
redis.call('PEXPIRE', key, window / 1000)
return { now, 1, held + 1, oldest + window }`

/** Asks for a number of decisions in a pipeline. */
type Ask = (pipeline: ChainableCommander) => number
interface Case {
  readonly name: string
  /** Fills empty tables, and returns what is measured. */
  readonly fill: (store: Redis) => Promise<Ask>
}

const keyOf = (i: number): string => `sluice:{client}:${i}`
const keys = Array.from({ length: KEYS }, (_, i) => keyOf(i))
const leaseId = (i: number): string => `${Date.now()}000:00000000-0000-4000-8000-000000000000:${i}`
const load = async (store: Redis, script: string): Promise<string> =>
  (await store.script('LOAD', script)) as string

/** Runs what is asked for, and returns the replies and the number of decisions. */
async function send(
  store: Redis,
  ask: Ask,
): Promise<readonly [replies: readonly unknown[], decisions: number]> {
  const pipeline = store.pipeline()
  const decisions = ask(pipeline)
  const replies = (await pipeline.exec())!.map(([error, reply]) => {
    if (error) throw error
    return reply
  })
  return [replies, decisions]
}

const ring = (calls: number): Case => ({
  name: `only an exact ring, ${calls} calls in the window`,
  async fill(store) {
    const sha = await load(store, RING_SCRIPT)
    const ask: Ask = (pipeline) => {
      for (const key of keys) pipeline.evalsha(sha, 1, key, 1000, HOUR_US)
      return KEYS
    }
    for (let i = 0; i < calls; i++) await send(store, ask)
    return ask
  },
})

const plain = (calls: number, together = 1): Case => ({
  name: `one limit, ${calls} calls in the window${together > 1 ? `, ${together} calls together` : ''}`,
  async fill(store) {
    const sha = await load(store, CHARGE_SCRIPT)
    const asking = (size: number): Ask => {
      return (pipeline) => {
        for (let i = 0; i < KEYS; i += size) {
          const some = keys.slice(i, i + size)
          pipeline.evalsha(sha, size, ...some, NO_DEADLINE, 0, size, ...some.map(() => RULE))
        }
        return KEYS
      }
    }
    for (let i = 0; i < calls; i++) await send(store, asking(1))
    return asking(together)
  },
})

const atOnce = (inProgress: number, charges: boolean): Case => ({
  name: `calls at once, ${inProgress} in progress${charges ? '' : ', only read'}`,
  async fill(store) {
    const sha = await load(store, CHARGE_SCRIPT)
    for (let i = 0; i < inProgress; i += 10) {
      const some = Array.from({ length: 10 }, (_, j) => [Date.now() * 1000 + HOUR_US, leaseId(i + j)])
      await store.zadd(keyOf(0), ...some.flat())
    }
    const what = charges ? '3' : '2'
    return (pipeline) => {
      for (let i = 0; i < KEYS; i++)
        pipeline.evalsha(
          ...([sha, 1, keyOf(0), NO_DEADLINE, 0, 0, what, '1000000 30000000 0 0', leaseId(-i)] as const),
        )
      return KEYS
    }
  },
})

const settled = (which: 'oldest' | 'newest', calls: number): Case => ({
  name: `settled, the ${which} of ${calls} calls, in a message of its own`,
  async fill(store) {
    const [charge, settle] = [await load(store, CHARGE_SCRIPT), await load(store, SETTLE_SCRIPT)]
    const instants = keys.map((): number[] => [])
    for (let i = 0; i < calls; i++) {
      const [replies] = await send(store, (pipeline) => {
        for (const key of keys) pipeline.evalsha(charge, 1, key, NO_DEADLINE, 0, 1, `1 1000 ${HOUR_US} 16 5`)
        return KEYS
      })
      for (const [j, reply] of replies.entries()) instants[j]!.push((reply as readonly number[])[0]!)
    }
    return (pipeline) => {
      for (const [i, key] of keys.entries()) {
        const at = instants[i]!.at(which === 'oldest' ? 0 : -1)!
        pipeline.evalsha(settle, 2, 'sluice:{}:~settled', key, i + 1, NO_DEADLINE, 60_000, 2, at, at, 0, -2)
      }
      return KEYS
    }
  },
})

const CASES: readonly Case[] = [
  ring(100),
  ...[5, 100, 500].map((calls) => plain(calls)),
  ...[5, 20].map((calls) => plain(calls, 16)),
  ...[10, 1000, 10_000].flatMap((inProgress) => [atOnce(inProgress, true), atOnce(inProgress, false)]),
  ...[10, 100].flatMap((calls) => [settled('newest', calls), settled('oldest', calls)]),
]

/** Microseconds in the script for each decision. */
async function measureCase(store: Redis, { fill }: Case): Promise<number> {
  await store.flushall()
  const ask = await fill(store)
  await store.config('RESETSTAT')
  const [, decisions] = await send(store, ask)
  const usec = /cmdstat_evalsha:calls=\d+,usec=(\d+)/.exec(await store.info('commandstats'))![1]
  return Number(usec) / decisions
}

export async function grown({ store }: Bench): Promise<string> {
  const figures = CASES.map((): number[] => [])
  for (let i = 0; i < ROUNDS; i++)
    for (const [j, each] of CASES.entries()) figures[j]!.push(await measureCase(store, each))
  const low = figures.map((each) => each.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 4)]!)
  return markdown(
    ['in the script', 'us', 'of the ring'],
    CASES.map(({ name }, i) => [name, low[i]!.toFixed(1), (low[i]! / low[0]!).toFixed(2)]),
  )
}
