/**
 * Profiles requests: Sluice and bare http-proxy under load, alternating, with V8's profiler:
 * `npm run bench:profile [-- --rounds N --seconds S --functions N]`. Microseconds a request, by area and by function.
 */
import type { Profiler } from 'node:inspector'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { type Contender, gateway, nodePeer } from './contenders.ts'
import { folder, stop } from './environment.ts'
import { mintTokens } from './load.ts'
import { type Bench, measure, runCommand, type Running, runProven } from './measure.ts'
import { markdown } from './report.ts'

type Frame = Profiler.ProfileNode['callFrame']

/** Areas of Node's own modules; the first match applies. */
const MODULES: readonly (readonly [pattern: RegExp, area: string])[] = [
  [/^node:_http_(client|agent)/, 'node: http client'],
  [/^node:(_http_(incoming|outgoing)|internal\/http)/, 'node: http messages'],
  [/^node:_http/, 'node: http server'],
  [/^node:(net|internal\/(net|stream_base_commons))/, 'node: sockets'],
  [/^node:(internal\/streams|stream)/, 'node: streams'],
  [/^node:events/, 'node: events'],
  [/^node:(internal\/)?(timers|process|async_hooks|fixed_queue)/, 'node: timers and queues'],
  [/^node:(internal\/)?crypto/, 'node: crypto'],
  [/^node:/, 'node: other'],
]

function areaOf({ url, functionName }: Frame): string {
  if (functionName === '(garbage collector)') return 'garbage collection'
  if (functionName === '(program)') return 'native: outside of functions'
  if (functionName.startsWith('RegExp:')) return 'regular expressions'
  if (url === '') return /^(write|shutdown)/.test(functionName) ? 'native: writes' : 'native: other'
  const library = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1]
  if (library !== undefined) return `library: ${library}`
  const room = /\/dist\/src\/([^/.]+)/.exec(url)?.[1]
  return MODULES.find(([pattern]) => pattern.test(url))?.[1] ?? `own code: ${room ?? 'start'}`
}

function functionOf({ functionName, url, lineNumber }: Frame): string {
  const file = url.replace(/^.*\/(node_modules|dist\/src|bench)\//, '')
  return `${functionName || '(anonymous)'} ${file}${file === '' ? '' : `:${lineNumber + 1}`}`
}

/** The profile of a process's main thread, the largest of its profiles. */
function readProfile(home: string): Profiler.Profile {
  const files = readdirSync(home).map((name) => join(home, name))
  const largest = files.toSorted((a, b) => statSync(b).size - statSync(a).size)[0]!
  return JSON.parse(readFileSync(largest, 'utf8')) as Profiler.Profile
}

interface Profiled {
  readonly requests: number
  /** Busy time of all requests, in microseconds. */
  readonly frames: ReadonlyMap<Frame, number>
}

/** Profiles contenders under load; their rounds alternate. */
async function profile(bench: Bench, contenders: readonly Contender[]): Promise<readonly Profiled[]> {
  const all: { running: Running; windows: number[][]; requests: number }[] = []
  for (const contender of contenders) {
    all.push({ running: await runProven(bench, contender), windows: [], requests: 0 })
  }
  const monotonicUs = (): number => Number(process.hrtime.bigint() / 1000n)
  for (let i = 0; i < bench.rounds; i++) {
    for (const one of all) {
      const from = monotonicUs()
      one.requests += (await measure(bench, one.running, bench.seconds)).requests
      one.windows.push([from, monotonicUs()])
    }
  }
  for (const { running } of all) await stop(running.child, 30_000)
  return all.map(({ running, windows, requests }) => {
    const { nodes, startTime, samples = [], timeDeltas = [] } = readProfile(homeOf(running.contender.name))
    const byId = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]))
    const frames = new Map<Frame, number>()
    let at = startTime
    for (const [i, id] of samples.entries()) {
      at += timeDeltas[i]!
      const frame = byId.get(id)!
      if (frame.functionName === '(idle)' || !windows.some(([from, to]) => from! <= at && at < to!)) continue
      // A sample stands for the time until the next one.
      frames.set(frame, (frames.get(frame) ?? 0) + (timeDeltas[i + 1] ?? 0))
    }
    return { requests, frames }
  })
}

function table(profiles: readonly Profiled[], keyOf: (frame: Frame) => string, most: number): string {
  const sums = new Map<string, number[]>([['all', profiles.map(() => 0)]])
  for (const [i, { frames, requests }] of profiles.entries()) {
    for (const [frame, us] of frames) {
      const key = keyOf(frame)
      if (!sums.has(key))
        sums.set(
          key,
          profiles.map(() => 0),
        )
      for (const sum of [sums.get(key)!, sums.get('all')!]) sum[i]! += us / requests
    }
  }
  const sorted = [...sums].toSorted(([, a], [, b]) => Math.max(...b) - Math.max(...a))
  const lines = sorted.slice(0, most + 1).map(([key, each]) => [key, ...each.map((us) => us.toFixed(1))])
  return markdown(['us a request', 'Sluice', 'http-proxy'], lines)
}

const homeOf = (name: string): string => join(folder, `profile-${name}`)

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    functions: { type: 'string', default: '40' },
  },
})

await runCommand(values, async (bench) => {
  const work = { tokens: await mintTokens('RS256', 1000) }
  const flags = (name: string) => ({ nodeFlags: ['--cpu-prof', `--cpu-prof-dir=${homeOf(name)}`] })
  const profiles = await profile(bench, [
    { name: 'Sluice', work, start: gateway(bench, flags('Sluice')) },
    { name: 'http-proxy', work, start: nodePeer('http-proxy', bench, flags('http-proxy')) },
  ])
  console.log(`${table(profiles, areaOf, 100)}\n\n${table(profiles, functionOf, Number(values.functions))}`)
  return 0
})
