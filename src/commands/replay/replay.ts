import { SingleBar } from 'cli-progress'
import type { Loaded } from '../../config/load.ts'
import type { Config } from '../../config/compile.ts'
import { createRouter, type Params } from '../../downstream/router.ts'
import { segmentsOf } from '../../downstream/target.ts'
import type { Decision } from '../../limit/decision.ts'
import { Refusal } from '../../errors.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { createLimiter } from '../../limit/limiter.ts'
import { NO_FACTS } from '../../limit/rules/facts.ts'
import { MemoryStore } from '../../limit/memory/store.ts'
import { compileRoutes } from '../../process/routes.ts'
import { type Args, idOf, type Io, load, print, UsageError, wholeOf, positionals } from '../io.ts'
import { describeReport } from './describe.ts'
import { createOrder, type LoggedCall, merge, readAccessLine, readLines, sizeOf } from './logs.ts'
import { createReport, emptyLineCounts, type Report, unloggedBy } from './report.ts'

const MAX_ROWS = 100_000

export interface ReplayOptions {
  readonly logs: readonly string[]
  readonly config: Loaded
  readonly top: number
  readonly client?: string | undefined
}

/** Prints the decisions that the limits of a configuration would have made for the calls of access logs. */
export async function run(args: Args, io: Io): Promise<void> {
  const logs = positionals(args)
  const again = logs.find((log, i) => logs.indexOf(log) < i)
  if (again !== undefined) throw new UsageError(`The log "${again}" is given twice.`)
  if (logs.includes('-') && args['config'] === '-')
    throw new UsageError('Standard input is the log or the configuration, not both.')
  const top = wholeOf(args, 'top', MAX_ROWS, 1)
  const client = idOf(args, 'client')
  const config = await load(args, io)
  const report = await replay({ logs, config, top, client }, io)
  print(io, args, report, () => describeReport(report, client))
}

/** Replays calls against the limits at the times of their decisions. Memory grows with the clients and the active keys. */
export async function replay(
  { logs, config: { config, file }, top, client }: ReplayOptions,
  { stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>,
): Promise<Report> {
  const lines = emptyLineCounts()
  const quotasOf = createCharges(config)
  const { count, report } = createReport(config, client)
  let clockMs = 0
  let omitted = 0
  const clock = { ...SYSTEM_CLOCK, now: () => clockMs, date: () => clockMs }
  const store = new MemoryStore(clock)
  const limiter = createLimiter(store, undefined, clock)
  const order = createOrder((call, nowMs) => {
    const quotas = quotasOf(call, nowMs)
    if (typeof quotas === 'string') {
      lines[quotas]++
      return
    }
    lines.replayed++
    clockMs = nowMs
    omitted += call.omitted
    // The memory store decides synchronously.
    for (let i = 0; i <= call.omitted; i++) {
      const decision = limiter.decide(quotas) as Decision
      count(call, decision, nowMs)
      const counts = quotas.some(({ countsSuccess }) => countsSuccess)
      if (counts && decision.admitted && call.failed) limiter.giveBack(quotas, decision)
    }
  })

  const progress = createProgress(await sizeOf(logs), stderr)
  const onRead = (bytes: number): void => progress.increment(bytes)
  const onOverlong = (): unknown => lines.overlong++
  async function* callsOf(log: string): AsyncGenerator<LoggedCall, void> {
    for await (const batch of readLines(log, stdin, onRead, onOverlong))
      for (const line of batch.filter(Boolean)) {
        const call = readAccessLine(line)
        if (call === undefined) lines.other++
        else yield call
      }
  }
  try {
    await merge(logs.map(callsOf), (call) => {
      if (call.arrived) order.push(call)
      else lines.refusedBefore++
    })
    order.end()
  } finally {
    progress.stop()
    await store.close()
  }
  return report(file, { lines, late: order.late, omitted }, top)
}

/**
 * Creates the function that returns the quotas of a logged call at an instant (epoch milliseconds), or the reason why it has
 * none. Matches calls with the gateway's router, or by the recorded route if the path or the host is not logged.
 */
function createCharges(config: Config) {
  const routes = compileRoutes({
    ...config,
    // A log may not contain the host of a call.
    routes: config.routes.map((route) => ({
      ...route,
      hosts: undefined,
      limits: route.limits.filter((limit) => unloggedBy(limit) === undefined),
    })),
  })
  const match = createRouter(routes)
  const byPattern = new Map(routes.map((route) => [route.match, route]))

  function find({ method, host, path, route = '' }: LoggedCall) {
    if (path !== undefined && host !== undefined) return match(method, host, segmentsOf(path))
    const named = byPattern.get(route)
    return named && { route: named, params: {} as Params }
  }

  return (call: LoggedCall, nowMs: number) => {
    const found = find(call)
    if (found === undefined || 'allow' in found) return 'unmatched'
    const { route, params } = found
    const { client, ip } = call
    if (route.limits.length === 0) return 'unlimited'
    // The recorded gateway did not authenticate a call that this one would.
    if (route.authenticate === 'bearer' && client === undefined) return 'lacking'
    const isLogged = (part: string): boolean =>
      part === 'client' || part === 'route' || (part === 'ip' ? ip : params[part]) !== undefined
    if (!route.limits.every(({ per }) => per.every(isLogged))) return 'lacking'
    if (route.refuseParams(found) !== undefined) return 'unmatched'
    const caller = { ...(client !== undefined && { client }), ip: ip ?? '' }
    const quotas = route.quotas(caller, { ...NO_FACTS, params, method: call.method, route }, nowMs)
    return quotas instanceof Refusal ? 'lacking' : quotas
  }
}

/** Draws nothing unless `stream` is a terminal; no bar if the total is not known (NaN). */
function createProgress(totalBytes: number, stream: NodeJS.WritableStream): SingleBar {
  const bar = '[{bar}] {percentage} % of {megabytes} MB, {eta_formatted} left'
  const format = Number.isNaN(totalBytes) ? '{value} bytes' : bar
  const chars = { barCompleteChar: '#', barIncompleteChar: '-' }
  // With `linewrap`, the terminal keeps its settings, also after Ctrl-C; lines are cut to its width.
  const progress = new SingleBar({ format, stream, clearOnComplete: true, linewrap: true, ...chars })
  progress.start(totalBytes || 0, 0, { megabytes: Math.ceil(totalBytes / 1e6) })
  return progress
}
