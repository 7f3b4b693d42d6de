/**
 * What the slowest hundredth of calls waited for: each call is compared with the collections, the timers and
 * the questions to Redis of the process that served it, and with the time in which it, nginx, Redis or the
 * client of these calls was ready to run and the machine did something else.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { type Contender, gateway, nodePeer, ROOT } from './contenders.ts'
import { folder, LOAD_CPU, stop } from './environment.ts'
import { mintTokens, type Tokens } from './load.ts'
import { type Bench, runProven } from './measure.ts'
import { markdown } from './report.ts'

const CONNECTIONS = 50
const LOAD_S = 15
const SAMPLE_MS = 2
const TAKES = 'a call takes, ms'

/** The marks of bench/marks.mjs, as the table names them. */
const TITLES: Readonly<Record<string, string>> = {
  scavenges: 'scavenges',
  otherCollections: 'other collections',
  timers: 'timers',
  redis: 'a question to Redis is out',
}

/** An interval of the monotonic clock in milliseconds; a part of it was spent in this way. */
interface Mark {
  readonly from: number
  readonly to: number
  readonly part: number
}
type Call = readonly [from: number, to: number]

const now = (): number => Number(process.hrtime.bigint()) / 1e6

/** Returns for how many milliseconds a process was ready to run without a CPU since its start. */
function waitedMs(pid: number | 'self'): number {
  return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6
}

/** Samples how long these processes wait for a CPU, until it is stopped. */
function sampleWaits(pids: readonly (number | 'self')[]): () => readonly Mark[] {
  const marks: Mark[] = []
  let from = now()
  let before = pids.map(waitedMs)
  const timer = setInterval(() => {
    const to = now()
    const waited = pids.map(waitedMs)
    const longest = Math.max(...waited.map((each, i) => each - before[i]!))
    if (longest > 0) marks.push({ from, to, part: Math.min(1, longest / (to - from)) })
    ;[from, before] = [to, waited]
  }, SAMPLE_MS)
  return () => {
    clearInterval(timer)
    return marks
  }
}

/** Calls over 50 connections. Each connection sends the next call when it has the response. */
async function callFor(port: number, seconds: number, tokens: readonly string[]): Promise<readonly Call[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  const calls: Call[] = []
  const until = now() + seconds * 1000
  let sent = 0
  const one = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${tokens[sent++ % tokens.length]}` }
      const from = now()
      request({ port, host: '127.0.0.1', path: '/transactions', agent, headers }, (response) => {
        if (response.statusCode !== 200) reject(new Error(`a call got ${response.statusCode}`))
        response.resume().once('end', () => {
          calls.push([from, now()])
          resolve()
        })
      })
        .once('error', reject)
        .end()
    })
  const connection = async (): Promise<void> => {
    while (now() < until) await one()
  }
  await Promise.all(Array.from({ length: CONNECTIONS }, connection))
  agent.destroy()
  return calls
}

/** Returns the function that sums the time of marks, in order and without overlaps, within a call. */
function overlapWith(marks: readonly Mark[]): (call: Call) => number {
  const sorted = marks.toSorted((a, b) => a.from - b.from)
  return ([from, to]) => {
    let [low, high] = [0, sorted.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (sorted[middle]!.to < from) low = middle + 1
      else high = middle
    }
    let sum = 0
    for (let i = low; i < sorted.length && sorted[i]!.from < to; i++)
      sum += Math.max(0, Math.min(sorted[i]!.to, to) - Math.max(sorted[i]!.from, from)) * sorted[i]!.part
    return sum
  }
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)

interface Measured {
  readonly calls: readonly Call[]
  readonly marks: Readonly<Record<string, readonly Mark[]>>
}

/** Loads a contender, and returns its calls with what was marked meanwhile. */
async function measureMarks(bench: Bench, contender: Contender, tokens: Tokens): Promise<Measured> {
  const file = join(folder, `marks-${contender.name}.json`)
  const start = async (port: number) => {
    const { args, env, ...command } = await contender.start(port)
    const preload = ['--import', join(ROOT, 'bench/marks.mjs')]
    return {
      ...command,
      args: [...preload, ...args],
      env: { ...env, MARKS: file, REDIS: String(bench.redis) },
    }
  }
  const running = await runProven(bench, { ...contender, start })
  const texts = readFileSync(tokens.file, 'utf8').trim().split('\n')
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8')
    .trim()
    .split(' ')
    .map(Number)
  const { pid } = running.child
  await callFor(running.port, 2, texts)
  await bench.store.flushall()
  const [stopServer, stopOthers] = [
    sampleWaits([pid!]),
    sampleWaits(['self', ...children.filter((id) => id !== pid)]),
  ]
  const calls = await callFor(running.port, LOAD_S, texts)
  const waits = { 'the process waits for a CPU': stopServer(), 'others wait for a CPU': stopOthers() }
  await stop(running.child, 10_000)
  const marked = JSON.parse(readFileSync(file, 'utf8')) as Readonly<Record<string, readonly Call[]>>
  const recorded = Object.entries(marked).map(([name, all]) => {
    return [TITLES[name]!, all.map(([from, to]) => ({ from, to, part: 1 }))] as const
  })
  return { calls, marks: { ...waits, ...Object.fromEntries(recorded) } }
}

const lengthOf = ([from, to]: Call): number => to - from

/** Means of all calls, and of the slowest hundredth: their milliseconds, and the parts of them with each mark. */
function columnsOf({ calls, marks }: Measured): ReadonlyMap<string, readonly [all: number, slowest: number]> {
  const sorted = calls.toSorted((a, b) => lengthOf(a) - lengthOf(b))
  const slowest = sorted.slice(-Math.ceil(sorted.length / 100))
  const both = (figure: (call: Call) => number) =>
    [mean(calls.map(figure)), mean(slowest.map(figure))] as const
  return new Map([
    [TAKES, both(lengthOf)],
    ...Object.entries(marks).map(([name, list]) => {
      const overlap = overlapWith(list)
      return [name, both((call) => (100 * overlap(call)) / lengthOf(call))] as const
    }),
  ])
}

export async function slowest(bench: Bench): Promise<string> {
  const tokens = await mintTokens('RS256', 1000)
  const contenders: readonly Contender[] = [
    { name: 'http-proxy', work: { tokens }, start: nodePeer('http-proxy', bench) },
    { name: 'Sluice', work: { tokens }, start: gateway(bench, { limit: 100_000 }) },
  ]
  spawnSync('taskset', ['-cp', String(LOAD_CPU), String(process.pid)])
  const columns: (readonly [name: string, figures: ReturnType<typeof columnsOf>])[] = []
  for (const contender of contenders) {
    const measured = await measureMarks(bench, contender, tokens)
    console.error(`  ${contender.name}: ${measured.calls.length} calls`)
    columns.push([contender.name, columnsOf(measured)])
  }
  const rows = [...columns.at(-1)![1].keys()]
  const show = (row: string, figure: number): string =>
    row === TAKES ? figure.toFixed(1) : `${figure.toFixed(1)} %`
  return markdown(
    ['', ...columns.flatMap(([name]) => [`${name}, all`, `${name}, slowest hundredth`])],
    rows.map((row) => [
      row,
      ...columns.flatMap(([, figures]) => figures.get(row)!.map((figure) => show(row, figure))),
    ]),
  )
}
