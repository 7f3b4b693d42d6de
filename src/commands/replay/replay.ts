import { SingleBar } from 'cli-progress'
import type { Loaded } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { createRouter, type Params } from '../../downstream/router.ts'
import { segmentsOf } from '../../downstream/target.ts'
import type { Decision } from '../../limit/decision.ts'
import { compileLimits } from '../../limit/limit.ts'
import { createLimiter } from '../../limit/limiter.ts'
import { MemoryStore } from '../../limit/memory/store.ts'
import { compileParameters } from '../../limit/parameters.ts'
import { type Args, idOf, type Io, load, print, UsageError, wholeOf, positionals } from '../io.ts'
import { type LoggedCall, readAccessLine } from './access-line.ts'
import { describeReport } from './describe.ts'
import { createOrder, merge, readLines, sizeOf } from './logs.ts'
import { createReport, emptyLineCounts, isReplayable, type Report } from './report.ts'

const MOST_ROWS = 100_000

export interface ReplayOptions {
  /** Files of the access log, plain or gzip; `-` is standard input. */
  readonly logs: readonly string[]
  readonly config: Loaded
  /** Most clients that are listed. */
  readonly top: number
  /** The one client to report, in place of all. */
  readonly client?: string | undefined
}

/** Prints what the limits of a configuration would have done to the calls of access logs. */
export async function run(args: Args, io: Io): Promise<void> {
  const logs = positionals(args)
  const again = logs.find((log, i) => logs.indexOf(log) < i)
  if (again !== undefined) throw new UsageError(`The log "${again}" is given twice.`)
  if (logs.includes('-') && args['config'] === '-')
    throw new UsageError('Standard input is the log or the configuration, not both.')
  const top = wholeOf(args, 'top', MOST_ROWS, 1)
  const client = idOf(args, 'client')
  const config = await load(args, io)
  const report = await replay({ logs, config, top, client }, io)
  print(io, args, report, () => describeReport(report, client))
}

/** Sends recorded calls through the limits as of when they were decided. Memory grows with the clients and the keys active at a time. */
export async function replay(
  { logs, config: { config, file }, top, client }: ReplayOptions,
  { stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>,
): Promise<Report> {
  const lines = emptyLineCounts()
  const chargesOf = createCharges(config)
  const tallies = createReport(config, client)
  let clockMs = 0
  let omitted = 0
  const clock = { monotonicMs: () => clockMs, wallMs: (monotonicMs: number) => monotonicMs }
  const store = new MemoryStore(clock)
  const limiter = createLimiter(store, undefined, clock.monotonicMs)
  const order = createOrder((call, nowMs) => {
    const quotas = chargesOf(call, nowMs)
    if (typeof quotas === 'string') {
      lines[quotas]++
      return
    }
    lines.replayed++
    clockMs = nowMs
    omitted += call.omitted
    // The memory store decides at once.
    for (let i = 0; i <= call.omitted; i++) tallies.note(call, limiter.decide(quotas) as Decision, nowMs)
  })

  const progress = createProgress(await sizeOf(logs), stderr)
  const onRead = (bytes: number): void => progress.increment(bytes)
  const onOverlong = (): unknown => lines.overlong++
  async function* callsOf(log: string): AsyncGenerator<LoggedCall, void> {
    for await (const batch of readLines(log, stdin, onRead, onOverlong)) {
      for (const line of batch) {
        const call = line === '' ? undefined : readAccessLine(line)
        if (call !== undefined) yield call
        else if (line !== '') lines.other++
      }
    }
  }
  try {
    await merge(logs.map(callsOf), (call) => {
      if (call.arrived) order.take(call)
      else lines.refusedBefore++
    })
    order.end()
  } finally {
    progress.stop()
    await store.close()
  }
  return tallies.report(file, { lines, late: order.late, omitted }, top)
}

/**
 * Returns the quotas that a logged call, decided at an instant (epoch milliseconds), is charged to, or why it is charged to
 * none: no route takes it or its path parameters, its route has no limits, or its line lacks what they are counted by.
 * Matches calls by the gateway's own router; where the path or host is not logged, by the recorded route.
 */
function createCharges({ routes, clientLimits, parameters }: Config) {
  const replayed = routes.map((route) => {
    const limits = route.limits.filter(isReplayable)
    return {
      ...route,
      // A log may not say which host was addressed.
      hosts: undefined,
      limits,
      parts: new Set(limits.flatMap(({ per }) => per)),
      refuseParams: compileParameters({ ...route, limits }, parameters),
      quotas: compileLimits(limits, 'replay', clientLimits),
    }
  })
  const match = createRouter(replayed)
  const byName = new Map(replayed.map((route) => [route.match, route]))

  function find({ method, host, path, route = '' }: LoggedCall) {
    if (path === undefined || host === undefined) {
      const named = byName.get(route)
      return named && { route: named, params: {} as Params }
    }
    const found = match(method, host, segmentsOf(path))
    return found !== undefined && 'route' in found ? found : undefined
  }

  return (call: LoggedCall, nowMs: number) => {
    const found = find(call)
    if (found === undefined) return 'unmatched'
    const { route, params } = found
    if (route.limits.length === 0) return 'unlimited'
    const { client, ip } = call
    // The recorded gateway did not authenticate a call that this one would.
    if (route.authenticate === 'bearer' && client === undefined) return 'lacking'
    for (const part of route.parts)
      if (part !== 'client' && (part === 'ip' ? ip : params[part]) === undefined) return 'lacking'
    if (route.refuseParams(params) !== undefined) return 'unmatched'
    return route.quotas({ ...(client !== undefined && { client }), ip: ip ?? '' }, params, nowMs)
  }
}

/** Draws nothing where `stream` is no terminal; no bar where the total is not known (NaN). */
function createProgress(totalBytes: number, stream: NodeJS.WritableStream): SingleBar {
  const bar = '[{bar}] {percentage} % of {megabytes} MB, {eta_formatted} left'
  const format = Number.isNaN(totalBytes) ? '{value} bytes' : bar
  const chars = { barCompleteChar: '#', barIncompleteChar: '-' }
  // With `linewrap`, the terminal keeps its settings, also after Ctrl-C; lines are cut to its width.
  const progress = new SingleBar({ format, stream, clearOnComplete: true, linewrap: true, ...chars })
  progress.start(totalBytes || 0, 0, { megabytes: Math.ceil(totalBytes / 1e6) })
  return progress
}
