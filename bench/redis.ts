/** Figures of Redis: the work and the memory of calls, through the scripts and through the gateway. */
import { spawnSync } from 'node:child_process'
import { CHARGE_SCRIPT, MERGE_SCRIPT, SETTLE_SCRIPT } from '../src/limit/redis/scripts.ts'
import { gateway } from './contenders.ts'
import { requireCommands, sleep, stop } from './environment.ts'
import { mintTokens } from './load.ts'
import { type Bench, measure, run } from './measure.ts'
import { markdown } from './report.ts'

const WINDOW_US = 60_000_000
const NO_DEADLINE = Number.MAX_SAFE_INTEGER
const CALLS = 100_000
const PIPELINE = 100
const CLIENTS = 1000
/** The limit of a call with one limit. */
const ONE_LIMIT = `1 1000 ${WINDOW_US} 0`
/** The hour of the clock, as a limit of charge.lua. */
const HOUR_US = 3_600_000_000
const HOUR_START = Math.floor((Date.now() * 1000) / HOUR_US) * HOUR_US
const HOUR = `${CALLS} ${HOUR_US} 2 ${HOUR_START}`
const [FREE_ACCESS, CHARGED_ACCESS] = [
  `1 1 ${WINDOW_US} 8 1000 ${WINDOW_US} 0`,
  `1 1 1 8 1000 ${WINDOW_US} 0`,
]
const INCR_SCRIPT = `if redis.call('INCR', KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[1], 60000) end`

/** Returns the microseconds that Redis has spent in scripts, and processor time including its sockets. */
export async function redisUs({ store }: Bench): Promise<{ scripts: number; processor: number }> {
  const info = await store.info('commandstats', 'cpu')
  const seconds = (name: string): number => Number(new RegExp(`^used_cpu_${name}:(.*)$`, 'm').exec(info)![1])
  return {
    scripts: Number(/cmdstat_evalsha:calls=\d+,usec=(\d+)/.exec(info)?.[1] ?? 0),
    processor: (seconds('sys') + seconds('user')) * 1e6,
  }
}

interface Call {
  readonly script?: string
  readonly limit?: number
  /** Limits of one decision. */
  readonly limits?: number
  /** Decisions in one call. */
  readonly decisions?: number
  /** The rule of each decision, in place of one of `limits` limits. */
  readonly rule?: string
}

/** Makes `count` decisions by a script, some in each call; calls are pipelined. */
export async function decide(
  { store }: Bench,
  script: string,
  { count, together, rule }: { readonly count: number; readonly together: number; readonly rule: string },
  keysOf: (decision: number) => readonly string[],
): Promise<void> {
  const sha = (await store.script('LOAD', script)) as string
  const rules = Array.from({ length: together }, () => rule)
  for (let done = 0; done < count;) {
    const pipeline = store.pipeline()
    for (let i = 0; i < PIPELINE && done < count; i++, done += together) {
      const keys = rules.flatMap((_, j) => keysOf(done + j))
      pipeline.evalsha(sha, keys.length, ...keys, NO_DEADLINE, 0, keys.length, ...rules)
    }
    await pipeline.exec()
  }
}

/** Microseconds in the script for each decision. */
async function scriptUs(bench: Bench, call: Call): Promise<string> {
  const { script = CHARGE_SCRIPT, limit = 1000, limits = 1, decisions: together = 1 } = call
  await bench.store.flushall()
  const each = Array.from({ length: limits }, (_, i) => i)
  const rule = call.rule ?? `1 ${each.map((i) => `${limit + i} ${WINDOW_US} 0`).join(' ')}`
  const before = await redisUs(bench)
  await decide(bench, script, { count: CALLS, together, rule }, (decision) =>
    each.map((i) => `sluice:{client-${decision % CLIENTS}}:limit-${i}`),
  )
  return `${(((await redisUs(bench)).scripts - before.scripts) / CALLS).toFixed(1)} us`
}

/** Microseconds of a merge of own calls, a microsecond apart, into the log of a client. */
async function mergeUs(bench: Bench, limit: number, ownCalls: number): Promise<string> {
  const { store } = bench
  await store.flushall()
  const sha = (await store.script('LOAD', MERGE_SCRIPT)) as string
  const now = Date.now() * 1000
  const instants = Array.from({ length: ownCalls }, (_, i) => [now - ownCalls + i, 1, 0]).flat()
  const rule = `1 ${limit} ${WINDOW_US} 0`
  const keyOf = (client: number): string => `sluice:{client-${client}}:limit`
  await decide(bench, CHARGE_SCRIPT, { count: CALLS / 10, together: 1, rule }, (i) => [keyOf(i % CLIENTS)])
  const before = await redisUs(bench)
  for (let done = 0; done < CLIENTS; done += PIPELINE) {
    const pipeline = store.pipeline()
    for (let client = done; client < done + PIPELINE; client++) {
      const keys = [`sluice:{client-${client}}:~merged`, keyOf(client)]
      pipeline.evalsha(sha, 2, ...keys, 1, NO_DEADLINE, limit, WINDOW_US, 0, 0, ...instants)
    }
    await pipeline.exec()
  }
  return `${(((await redisUs(bench)).scripts - before.scripts) / CLIENTS).toFixed(1)} us`
}

/**
 * Microseconds of a settlement of the oldest or the newest of a client's calls, to two points fewer; in a message of its own. The
 * limit is above 1000, so that the calls share slots; bench/grown.ts settles calls with a slot each.
 */
async function settleUs(bench: Bench, calls: number, which: 'oldest' | 'newest'): Promise<string> {
  const { store } = bench
  await store.flushall()
  const charge = (await store.script('LOAD', CHARGE_SCRIPT)) as string
  const settle = (await store.script('LOAD', SETTLE_SCRIPT)) as string
  const clients = Array.from({ length: 100 }, (_, client) => `sluice:{client-${client}}:limit`)
  const instants = new Map<string, number[]>()
  for (const key of clients) {
    instants.set(key, [])
    for (let i = 0; i < calls; i++) {
      const rule = `1 1000000 ${HOUR_US} 16 5`
      const [nowUs] = (await store.evalsha(charge, 1, key, NO_DEADLINE, 0, 1, rule)) as number[]
      instants.get(key)!.push(nowUs!)
    }
  }
  const before = await redisUs(bench)
  const pipeline = store.pipeline()
  for (const [i, key] of clients.entries()) {
    const at = instants.get(key)!.at(which === 'oldest' ? 0 : -1)!
    pipeline.evalsha(settle, 2, 'sluice:{}:~settled', key, i + 1, NO_DEADLINE, 60_000, 2, at, at, 0, -2)
  }
  await pipeline.exec()
  return `${(((await redisUs(bench)).scripts - before.scripts) / clients.length).toFixed(1)} us`
}

const leaseId = (i: number): string => `${Date.now()}000:00000000-0000-4000-8000-000000000000:${i}`

/** Microseconds in the script for each call of a limit of calls at once, and in ZREM for its end. */
async function atOnceUs({ store }: Bench, limit: number): Promise<readonly [charge: string, end: string]> {
  await store.flushall()
  await store.config('RESETSTAT')
  const sha = (await store.script('LOAD', CHARGE_SCRIPT)) as string
  const keyOf = (i: number): string => `sluice:{client-${i % CLIENTS}}:~leases:limit`
  for (let done = 0; done < CALLS / 10; done += PIPELINE) {
    const [begun, ended] = [store.pipeline(), store.pipeline()]
    for (let i = done; i < done + PIPELINE; i++) {
      const id = leaseId(i)
      begun.evalsha(sha, 1, keyOf(i), NO_DEADLINE, 0, 0, '3', `${limit} 30000000 0 0`, id)
      ended.zrem(keyOf(i), id)
    }
    await begun.exec()
    if (limit > 1) await ended.exec()
  }
  const info = await store.info('commandstats')
  const usOf = (name: string): string =>
    Number(new RegExp(`^cmdstat_${name}:.*usec_per_call=([\\d.]+)`, 'm').exec(info)?.[1] ?? 0).toFixed(1)
  return [`${usOf('evalsha')} us`, `${usOf('zrem')} us`]
}

/** Microseconds in the script for each call with a cost, under a limit of an hour of the clock and one of calls at once. */
async function allTogetherUs(bench: Bench): Promise<string> {
  const { store } = bench
  await store.flushall()
  const sha = (await store.script('LOAD', CHARGE_SCRIPT)) as string
  const before = await redisUs(bench)
  const rule = `${HOUR.replace(' 2 ', ' 18 ')} 5`
  for (let done = 0; done < CALLS / 10; done += PIPELINE) {
    const pipeline = store.pipeline()
    for (let i = done; i < done + PIPELINE; i++) {
      const client = `sluice:{client-${i % CLIENTS}}`
      const keys = [`${client}:requests`, `${client}:~leases:limit`]
      pipeline.evalsha(sha, 2, ...keys, NO_DEADLINE, 0, 1, `3 ${rule}`, '1000 30000000 0 0', leaseId(i))
    }
    await pipeline.exec()
  }
  return `${(((await redisUs(bench)).scripts - before.scripts) / (CALLS / 10)).toFixed(1)} us`
}

/** Bytes of a key of calls at once, for each call. */
async function leaseBytes({ store }: Bench, calls: number): Promise<string> {
  const key = `sluice:{client}:~leases:${calls}`
  await store.zadd(
    key,
    ...Array.from({ length: calls }, (_, i) => [Date.now() * 1000 + i, leaseId(i)]).flat(),
  )
  return `${Math.round(Number(await store.memory('USAGE', key, 'SAMPLES', 0)) / calls)} bytes each`
}

/** Microseconds of each admitted call. */
async function gatewayUs(bench: Bench, limits: number): Promise<string> {
  const work = { tokens: await mintTokens('RS256', CLIENTS) }
  const running = await run({ name: 'Sluice', work, start: gateway(bench, { limits }) })
  await sleep(500)
  await measure(bench, running, bench.seconds)
  const before = await redisUs(bench)
  const { requests } = await measure(bench, running, 2 * bench.seconds)
  const after = await redisUs(bench)
  await stop(running.child)
  const each = (name: 'scripts' | 'processor'): string => ((after[name] - before[name]) / requests).toFixed(1)
  return `${each('scripts')} us in scripts, ${each('processor')} us of the processor`
}

/** Script calls per second over 50 connections, with one pending call each. */
async function callRate(bench: Bench, sha: string): Promise<string> {
  requireCommands('redis-benchmark')
  const before = await redisUs(bench)
  const call = ['EVALSHA', sha, '1', '{rate-__rand_int__}', String(NO_DEADLINE), '0', '1', ONE_LIMIT]
  const options = `-c 0 redis-benchmark -p ${bench.redis} -c 50 -n ${CALLS} -r ${CLIENTS} --csv`
  const { stdout, stderr } = spawnSync('taskset', [...options.split(' '), ...call], { encoding: 'utf8' })
  const perSecond = Number(/","([\d.]+)"/.exec(stdout)?.[1])
  if (!(perSecond > 0)) throw new Error(`redis-benchmark failed: ${stderr}${stdout}`)
  const us = ((await redisUs(bench)).processor - before.processor) / CALLS
  return `${perSecond.toFixed(0)}, ${us.toFixed(1)} us of the processor each`
}

export async function redis(bench: Bench): Promise<string> {
  // The first runs of a script take longer.
  await atOnceUs(bench, 1000)
  await settleUs(bench, 10, 'newest')
  const [begun, ended] = await atOnceUs(bench, 1000)
  const [refused] = await atOnceUs(bench, 1)
  const lines = [
    ['script: admitted, a limit of calls at once', begun],
    ['ZREM: the end of a call', ended],
    ['script: refused, a limit of calls at once', refused],
    ['script: admitted, a cost of 5', await scriptUs(bench, { rule: `1 1000 ${WINDOW_US} 16 5` })],
    ['script: admitted, a cost of 5, an hour of the clock and calls at once', await allTogetherUs(bench)],
    ['script: admitted, one limit', await scriptUs(bench, {})],
    ['script: admitted, two limits', await scriptUs(bench, { limits: 2 })],
    ['script: admitted, one limit, sixteen calls together', await scriptUs(bench, { decisions: 16 })],
    [
      'script: admitted, two limits, sixteen calls together',
      await scriptUs(bench, { limits: 2, decisions: 16 }),
    ],
    ['script: admitted, 5000 a minute', await scriptUs(bench, { limit: 5000 })],
    ['script: refused', await scriptUs(bench, { limit: 1 })],
    ['script: admitted, an hour of the clock', await scriptUs(bench, { rule: `1 ${HOUR}` })],
    ['script: settled, the newest of 10 calls in shared slots', await settleUs(bench, 10, 'newest')],
    ['script: settled, the oldest of 10 calls in shared slots', await settleUs(bench, 10, 'oldest')],
    ['script: settled, the newest of 100 calls in shared slots', await settleUs(bench, 100, 'newest')],
    ['script: settled, the oldest of 100 calls in shared slots', await settleUs(bench, 100, 'oldest')],
    ['script: 100 own calls merged', await mergeUs(bench, 1000, 100)],
    ['script: charged with its access', await scriptUs(bench, { rule: CHARGED_ACCESS, limits: 2 })],
    ['script: free in its access', await scriptUs(bench, { rule: FREE_ACCESS, limits: 2 })],
    ['script: only INCR and PEXPIRE', await scriptUs(bench, { script: INCR_SCRIPT })],
    ['through the gateway: admitted, one limit', await gatewayUs(bench, 1)],
    ['through the gateway: admitted, two limits', await gatewayUs(bench, 2)],
  ]
  const sha = (await bench.store.script('LOAD', CHARGE_SCRIPT)) as string
  lines.push(['script calls a second, 50 connections', await callRate(bench, sha)])
  for (const calls of [1, 16, 20, 100, 500, 1000]) {
    const key = `sluice:{00000000-0000-4000-8000-${String(calls).padStart(12, '0')}}:requests`
    for (let i = 0; i < calls; i++) await bench.store.evalsha(sha, 1, key, NO_DEADLINE, 0, 1, ONE_LIMIT)
    lines.push([
      `a client with ${calls} calls in its window`,
      `${await bench.store.memory('USAGE', key)} bytes`,
    ])
  }
  for (const calls of [1, 100, 1000])
    lines.push([`${calls} calls at once of a client`, await leaseBytes(bench, calls)])
  const further = [
    ['an hour of the clock', ['{memory}:hour'], `1 ${HOUR}`],
    ['an access and its limit, one call', ['{memory}:~access:sessions', '{memory}:sessions'], FREE_ACCESS],
  ] as const
  for (const [name, keys, rule] of further) {
    await bench.store.evalsha(sha, keys.length, ...keys, NO_DEADLINE, 0, keys.length, rule)
    const bytes = await Promise.all(keys.map((key) => bench.store.memory('USAGE', key)))
    lines.push([name, `${bytes.join(' + ')} bytes`])
  }
  return markdown(['Redis', ''], lines)
}
