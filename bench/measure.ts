/** Measures contenders in many short alternating rounds, so that other work on the machine disturbs them equally. */
import type { ChildProcess } from 'node:child_process'
import { Redis } from 'ioredis'
import { type Backends, type Contender, prove } from './contenders.ts'
import { busyS, freePort, PROXY_CPU, requireCommands, serve, sleep } from './environment.ts'
import { startRedis, startUpstream, stop, usage } from './environment.ts'
import { type Load, load } from './load.ts'

/** Warm-up, in seconds: V8 compiles the hot path. */
const WARM_UP_S = 4
/**
 * Maximum share of the contender's CPU that other processes may take; beyond it a round is
 * repeated, at most `REPEATS` times.
 */
const FOREIGN = 0.06
const REPEATS = 2

export interface Bench extends Backends {
  readonly rounds: number
  readonly seconds: number
  /** Contenders that cannot run here, with the reason. */
  readonly absent: ReadonlyMap<string, string>
  readonly store: Redis
}

/** Runs a command of the benchmark, and exits with the code that it resolves with, or 2. */
export async function runCommand(
  { rounds, seconds }: { readonly rounds: string; readonly seconds: string },
  command: (bench: Bench) => Promise<number>,
  absent = new Map<string, string>(),
): Promise<never> {
  try {
    requireCommands('taskset', 'wrk', 'nginx', 'redis-server')
    const redis = await startRedis()
    const store = new Redis({ port: redis, host: '127.0.0.1' })
    const settings = { rounds: Number(rounds), seconds: Number(seconds), absent }
    process.exit(await command({ ...settings, upstream: await startUpstream(), redis, store }))
  } catch (error) {
    console.error(`bench: ${(error as Error).message}`)
    process.exit(2)
  }
}

export interface Round extends Load {
  readonly cpuUs: number
  readonly rssMb: number
  /** Share of the CPU time that other processes took. */
  readonly foreign: number
  /** Unexpected responses. */
  readonly wrong: number
}

/** A running contender. */
export interface Running {
  readonly contender: Contender
  readonly port: number
  readonly child: ChildProcess
  /** Requests sent so far. */
  sent: number
}

export async function run(contender: Contender): Promise<Running> {
  const port = await freePort()
  const child = await serve(contender.cpus ?? PROXY_CPU, port, await contender.start(port))
  return { contender, port, child, sent: 0 }
}

/** Runs a contender, proves that it does its work, and warms it up. */
export async function runProven(bench: Bench, contender: Contender): Promise<Running> {
  const running = await run(contender)
  try {
    await sleep(500)
    await prove(contender, running.port, bench)
    do await measure(bench, running, WARM_UP_S)
    while (running.sent < (contender.warmUpRequests ?? 0))
    return running
  } catch (error) {
    await stop(running.child)
    throw error
  }
}

/** Loads a contender for some seconds, with new clients unless it keeps its counters. */
export async function measure(bench: Bench, running: Running, seconds: number): Promise<Round> {
  const { contender, port, child } = running
  if (contender.keepsCounters !== true) await bench.store.flushall()
  const before = { ...usage(child.pid!), busyS: busyS(PROXY_CPU) }
  const done = await load(port, seconds, contender.work, running.sent)
  const after = { ...usage(child.pid!), busyS: busyS(PROXY_CPU) }
  running.sent += done.requests + 100
  const cpuS = after.cpuS - before.cpuS
  return {
    ...done,
    cpuUs: (cpuS / done.requests) * 1e6,
    rssMb: after.rssMb,
    foreign: Math.max(0, (after.busyS - before.busyS - cpuS) / seconds),
    wrong: (contender.refuses === true ? done.requests - done.refused : done.refused) + done.errors,
  }
}

/** Measures a round, and repeats it if other processes disturbed it. Returns the least disturbed round. */
async function undisturbed(bench: Bench, running: Running): Promise<Round> {
  let best = await measure(bench, running, bench.seconds)
  for (let repeats = 0; best.foreign > FOREIGN && repeats < REPEATS; repeats++) {
    const again = await measure(bench, running, bench.seconds)
    if (again.foreign < best.foreign) best = again
  }
  return best
}

export interface Result {
  readonly contender: Contender
  /** Empty if it failed. */
  rounds: readonly Round[]
  /** The reason if it could not be measured. */
  failure: string | undefined
}

/** Measures all contenders in interleaved rounds; each is first equally often. */
export async function compare(bench: Bench, contenders: readonly Contender[]): Promise<readonly Result[]> {
  const results = contenders.map((contender): Result => {
    return { contender, rounds: [], failure: bench.absent.get(contender.name) }
  })
  const running = new Map<Result, Running>()
  const attempt = async (result: Result, action: () => Promise<void>): Promise<void> => {
    try {
      if (result.failure === undefined) await action()
    } catch (error) {
      result.failure = (error as Error).message
      result.rounds = []
      console.error(`  ${titleOf(result.contender)} failed: ${result.failure}`)
    }
  }
  await bench.store.flushall()
  for (const result of results) {
    await attempt(result, async () => void running.set(result, await runProven(bench, result.contender)))
  }
  for (let i = 0; i < bench.rounds; i++) {
    for (let j = 0; j < results.length; j++) {
      const result = results[(i + j) % results.length]!
      await attempt(result, async () => {
        const round = await undisturbed(bench, running.get(result)!)
        result.rounds = [...result.rounds, round]
        console.error(`  round ${i + 1} ${titleOf(result.contender)}: ${show(round)}`)
      })
    }
  }
  for (const { child } of running.values()) await stop(child)
  return results
}

export const titleOf = ({ name, detail }: Contender): string =>
  detail === undefined ? name : `${name}, ${detail}`

function show({ rps, cpuUs, p99Us, rssMb, foreign, wrong }: Round): string {
  const noise = foreign > FOREIGN ? `, ${(foreign * 100).toFixed(0)} % of the CPU went to others` : ''
  const mistakes = wrong > 0 ? `, ${wrong} WRONG ANSWERS` : ''
  return `${rps.toFixed(0)}/s, ${cpuUs.toFixed(1)} us, p99 ${(p99Us / 1000).toFixed(1)} ms, ${rssMb.toFixed(0)} MB${noise}${mistakes}`
}

export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
}

/** Returns the result of the reference, 1.00, for another result. */
export function referenceOf(result: Result, results: readonly Result[]): Result | undefined {
  const { against = 'http-proxy', detail } = result.contender
  const named = results.filter(({ contender, rounds }) => contender.name === against && rounds.length > 0)
  return named.find(({ contender }) => contender.detail === detail) ?? named[0]
}

/** Quotients of a figure, taken within each round. */
export function ratios(of: Result, to: Result, figure: (round: Round) => number): readonly number[] {
  return of.rounds.map((round, i) => figure(round) / figure(to.rounds[i]!))
}

export function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = (sorted.length - 1) / 2
  const median = (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2
  return { median, min: sorted[0]!, max: sorted.at(-1)! }
}

export const medianOf = (values: readonly number[]): number => spread(values).median

/** The ratio of processor times from which a request is dearer. */
export const DEARER = 1.05

/** The bounds between which the median lies, with 95 % confidence. */
export function confidence(values: readonly number[]): readonly [number, number] {
  const sorted = values.toSorted((a, b) => a - b)
  const rank = Math.max(0, Math.floor((sorted.length - 1.96 * Math.sqrt(sorted.length)) / 2))
  return [sorted[rank]!, sorted.at(-1 - rank)!]
}

/** True if ratios are above `DEARER`, and their spread leaves no doubt that they are above 1. */
export const isDearer = (ratios: readonly number[]): boolean =>
  spread(ratios).median > DEARER && confidence(ratios)[0] > 1
