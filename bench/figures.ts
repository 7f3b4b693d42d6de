/** Figures of Sluice only: speed after a start, memory, workers and garbage. */
import { availableParallelism } from 'node:os'
import { callers, capacity, distance } from './capacity.ts'
import { type Contender, gateway, nodePeer } from './contenders.ts'
import { stop } from './environment.ts'
import { mintTokens } from './load.ts'
import { measureGarbage } from './garbage.ts'
import { type Bench, measure, type Round, run, spread } from './measure.ts'
import { redis } from './redis.ts'
import { markdown, showSpread } from './report.ts'
import { ROWS } from './rows.ts'
import { fleet } from './fleet.ts'
import { grown } from './grown.ts'
import { slices } from './slices.ts'
import { slowest } from './slowest.ts'

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
 * Speed in each second after a start, relative to the steady speed of the same process: in
 * requests, and in requests for each second of its own processor time, which other processes
 * disturb less.
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

/**
 * Measures several processes on all CPUs; they share a CPU with wrk, the upstream and Redis.
 * Disturbed rounds are not repeated.
 */
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

const GARBAGE_ROWS = ['reused', 'new', 'refused']
const GARBAGE_S = 20

async function garbage(bench: Bench): Promise<string> {
  const lines: string[][] = []
  for (const name of GARBAGE_ROWS) {
    const { title, contenders } = ROWS[name]!
    const sluice = (await contenders(bench)).find((contender) => contender.name === 'Sluice')!
    await bench.store.flushall()
    const figures = await measureGarbage(bench, sluice, GARBAGE_S)
    lines.push([
      title,
      ...[figures.allocatedBytes.toFixed(0), figures.promotedBytes.toFixed(1)],
      ...[figures.scavengeMs.toFixed(2), figures.fullCollections.toFixed(2)],
    ])
  }
  const header = ['garbage of a request', 'bytes allocated', 'bytes promoted', 'ms a scavenge']
  return markdown([...header, 'full collections in 100,000'], lines)
}

/** Rows with tables of their own. */
export const FIGURES: Readonly<Record<string, (bench: Bench) => Promise<string>>> = {
  start: firstSeconds,
  memory,
  workers,
  garbage,
  redis,
  slices,
  capacity,
  distance,
  callers,
  fleet,
  grown,
  slowest,
}
