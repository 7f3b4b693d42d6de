/** Figures of Sluice only: speed after a start, memory, and the work of Redis for a call. */
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { CHARGE_SCRIPT } from '../src/limit/redis/scripts.ts'
import { type Contender, gateway, nodePeer } from './contenders.ts'
import { requireCommands, sleep, stop } from './environment.ts'
import { mintTokens } from './load.ts'
import { type Bench, measure, type Round, run, spread } from './measure.ts'
import { markdown, showSpread } from './report.ts'

const STARTS = 5
const FIRST_S = 10
/** Seconds until a process has reached its steady speed, and seconds whose median is the steady speed. */
const SETTLING_S = 15
const STEADY_S = 5

async function pair(bench: Bench, limit: number): Promise<readonly Contender[]> {
  const work = { tokens: await mintTokens('RS256', 1000) }
  return [
    { name: 'http-proxy', work, start: nodePeer('http-proxy', bench) },
    { name: 'Sluice', work, start: gateway(bench, { limit }) },
  ]
}

/**
 * Speed in each second after a start, relative to the steady speed of the same process: in requests, and in requests for each
 * second of its own processor time, which other processes disturb less.
 */
async function firstSeconds(bench: Bench): Promise<string> {
  const figures: Readonly<Record<string, (round: Round) => number>> = {
    requests: ({ rps }) => rps,
    'processor time': ({ cpuUs }) => 1 / cpuUs,
  }
  const columns = new Map<string, number[][]>()
  const contenders = await pair(bench, 1000)
  for (const contender of Array.from({ length: STARTS }, () => contenders).flat()) {
    const running = await run(contender)
    const first: Round[] = []
    while (first.length < FIRST_S) first.push(await measure(bench, running, 1))
    await measure(bench, running, SETTLING_S)
    const steady: Round[] = []
    while (steady.length < STEADY_S) steady.push(await measure(bench, running, 1))
    await stop(running.child)
    for (const [figure, speedOf] of Object.entries(figures)) {
      const speed = spread(steady.map(speedOf)).median
      const column = `${contender.name}, ${figure}`
      columns.set(column, [...(columns.get(column) ?? []), first.map((round) => speedOf(round) / speed)])
    }
  }
  const lines = Array.from({ length: FIRST_S }, (_, second) => [
    String(second + 1),
    ...[...columns.values()].map((starts) => showSpread(spread(starts.map((each) => each[second]!)))),
  ])
  return markdown(['second', ...columns.keys()], lines)
}

async function memory(bench: Bench): Promise<string> {
  const lines: string[][] = []
  for (const contender of await pair(bench, 100_000)) {
    const running = await run(contender)
    const cells: string[] = []
    for (const seconds of [60, 30]) {
      const { rssMb, wrong } = await measure(bench, running, seconds)
      cells.push(`${rssMb.toFixed(0)} MB${wrong > 0 ? ` (${wrong} wrong answers)` : ''}`)
    }
    await stop(running.child)
    lines.push([contender.name, ...cells])
  }
  return markdown(['resident memory', 'after 60 s of load', 'after another 30 s'], lines)
}

/** Measures several processes on all CPUs; they share a CPU with wrk, the upstream and Redis. Disturbed rounds are not repeated. */
async function workers(bench: Bench): Promise<string> {
  const work = { tokens: await mintTokens('RS256', 1000) }
  const cpus = `0-${availableParallelism() - 1}`
  const rps = new Map<string, number[]>()
  for (let i = 0; i < STARTS; i++) {
    for (const count of ['1', '2']) {
      const start = gateway(bench, { limit: 100_000, flags: ['--workers', count] })
      const running = await run({ name: 'Sluice', work, start, cpus })
      await measure(bench, running, SETTLING_S)
      const round = await measure(bench, running, STEADY_S)
      if (round.wrong > 0) throw new Error(`${round.wrong} wrong answers of ${count} workers`)
      await stop(running.child)
      rps.set(count, [...(rps.get(count) ?? []), round.rps])
    }
  }
  const one = rps.get('1')!
  const lines = [...rps].map(([count, each]) => [
    count,
    spread(each).median.toFixed(0),
    showSpread(spread(each.map((value, i) => value / one[i]!))),
  ])
  return markdown(['workers', 'requests/s', 'of one worker'], lines)
}

const WINDOW_US = 60_000_000
const NO_DEADLINE = Number.MAX_SAFE_INTEGER
const CALLS = 100_000
const PIPELINE = 100
const CLIENTS = 1000
/** The limit of a call with one limit. */
const ONE_LIMIT = `1 1000 ${WINDOW_US} 0`
/** The hour of the clock, as a limit of charge.lua. */
const HOUR_US = 3_600_000_000
const HOUR = `${CALLS} ${HOUR_US} 4 ${Math.floor((Date.now() * 1000) / HOUR_US) * HOUR_US}`
const [FREE_ACCESS, CHARGED_ACCESS] = [
  `1 1 ${WINDOW_US} 2 1000 ${WINDOW_US} 0`,
  `1 1 1 2 1000 ${WINDOW_US} 0`,
]
const INCR_SCRIPT = `if redis.call('INCR', KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[1], 60000) end`

/** Microseconds that Redis has spent in scripts, and processor time including its sockets. */
async function redisUs({ store }: Bench): Promise<{ scripts: number; processor: number }> {
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

/** Microseconds in the script for each decision; calls are pipelined. */
async function scriptUs(bench: Bench, call: Call): Promise<string> {
  const { script = CHARGE_SCRIPT, limit = 1000, limits = 1, decisions = 1 } = call
  await bench.store.flushall()
  const sha = (await bench.store.script('LOAD', script)) as string
  const each = Array.from({ length: limits }, (_, i) => i)
  const rule = call.rule ?? `1 ${each.map((i) => `${limit + i} ${WINDOW_US} 0`).join(' ')}`
  const before = await redisUs(bench)
  for (let done = 0; done < CALLS;) {
    const pipeline = bench.store.pipeline()
    for (let i = 0; i < PIPELINE; i++, done += decisions) {
      const clients = Array.from({ length: decisions }, (_, j) => (done + j) % CLIENTS)
      const keys = clients.flatMap((client) => each.map((i) => `sluice:{client-${client}}:limit-${i}`))
      pipeline.evalsha(sha, keys.length, ...keys, NO_DEADLINE, 0, ...clients.map(() => rule))
    }
    await pipeline.exec()
  }
  return `${(((await redisUs(bench)).scripts - before.scripts) / CALLS).toFixed(1)} us`
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
  const call = ['EVALSHA', sha, '1', '{rate-__rand_int__}', String(NO_DEADLINE), '0', ONE_LIMIT]
  const options = `-c 0 redis-benchmark -p ${bench.redis} -c 50 -n ${CALLS} -r ${CLIENTS} --csv`
  const { stdout } = spawnSync('taskset', [...options.split(' '), ...call], { encoding: 'utf8' })
  const perSecond = Number(/","([\d.]+)"/.exec(stdout)?.[1])
  const us = ((await redisUs(bench)).processor - before.processor) / CALLS
  return `${perSecond.toFixed(0)}, ${us.toFixed(1)} us of the processor each`
}

async function redis(bench: Bench): Promise<string> {
  const lines = [
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
    ['script: given back', await scriptUs(bench, { rule: `2 ${HOUR} ${HOUR.split(' ').at(-1)} -1` })],
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
    for (let i = 0; i < calls; i++) await bench.store.evalsha(sha, 1, key, NO_DEADLINE, 0, ONE_LIMIT)
    lines.push([
      `a client with ${calls} calls in its window`,
      `${await bench.store.memory('USAGE', key)} bytes`,
    ])
  }
  const further = [
    ['an hour of the clock', ['{memory}:hour'], `1 ${HOUR}`],
    ['an access and its limit, one call', ['{memory}:sessions~', '{memory}:sessions'], FREE_ACCESS],
  ] as const
  for (const [name, keys, rule] of further) {
    await bench.store.evalsha(sha, keys.length, ...keys, NO_DEADLINE, 0, rule)
    const bytes = await Promise.all(keys.map((key) => bench.store.memory('USAGE', key)))
    lines.push([name, `${bytes.join(' + ')} bytes`])
  }
  return markdown(['Redis', ''], lines)
}

/** Rows with tables of their own. */
export const FIGURES: Readonly<Record<string, (bench: Bench) => Promise<string>>> = {
  start: firstSeconds,
  memory,
  workers,
  redis,
}
