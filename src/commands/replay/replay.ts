import { stat } from 'node:fs/promises'
import { SingleBar } from 'cli-progress'
import type { Loaded } from '../../config/load.ts'
import { problemLine } from '../../config/yaml/issue.ts'
import type { Decision } from '../../limit/decision.ts'
import { createLimiter } from '../../limit/limiter.ts'
import { createMemoryStore } from '../../limit/memory/store.ts'
import { type Clock, SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { type Args, positionals, textOf, textsOf, UsageError, wholeOf } from '../args.ts'
import { load } from '../configuration.ts'
import { type Io, print, writeLines } from '../io.ts'
import { formatParagraphs, formatRows, pluralize } from '../format.ts'
import { type ChargedCall, createCharges } from './charges.ts'
import { type ReadLog, readCalls } from './calls.ts'
import type { LoggedCall } from './formats/call.ts'
import { FORMAT_NAMES, type FormatName } from './formats/formats.ts'
import { titleOf } from './lines.ts'
import { passInOrder } from './order.ts'
import { createTrial, describePlans } from './plans.ts'
import { createReport, describeClients, describeLimits, describeTotals } from './report.ts'

/**
 * Prints the decisions that the limits of a configuration would have made for the calls of access logs.
 * Returns the exit code: 1 if some lines could not be read.
 */
export async function run(args: Args, io: Io): Promise<number> {
  const logs = positionals(args)
  if (logs.length === 0) throw new UsageError('Which log? Give its files, or - for standard input.')
  if (logs.includes('-') && textOf(args, 'config') === '-')
    throw new UsageError('Standard input is the log or the configuration, not both.')
  const loaded = await load(args, io, { offline: args['offline'] === true })
  for (const note of loaded.notes) writeLines(io.stderr, `note: not here: ${problemLine(note)}`)
  const report = await replay(loaded, logs, args, io)
  print(io, args, report, describeReport)
  const incomplete = report.logs.filter((log) => log.unreadable > 0)
  for (const log of incomplete) writeLines(io.stderr, `sluice: ${describeUnreadable(log)}`)
  return incomplete.length > 0 ? 1 : 0
}

export type Report = Awaited<ReturnType<typeof replay>>

/**
 * Replays calls against the limits at the times of their decisions. Memory grows with the clients
 * and the active keys.
 */
export async function replay(
  { config, file }: Loaded,
  logs: readonly string[],
  args: Args,
  { stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>,
) {
  const top = wholeOf(args, 'top', Number.MAX_SAFE_INTEGER, 1)
  const lines = createLineCounts()
  const clock = createReplayedClock()
  const counted = createReport(config)
  const noRoute = createNoRoute()
  const limiter = createReplayedLimiter(clock)
  const trial = createTrial(textsOf(args, 'plan'), config)
  const quotasOf = createCharges({ ...config, plans: trial.plans })
  const client = textOf(args, 'client')
  let omitted = 0

  function pass(call: LoggedCall, nowMs: number): void {
    const charge = quotasOf(call, nowMs)
    if (typeof charge === 'string') {
      lines[charge]++
      if (charge === 'unmatched') noRoute.count(call)
      return
    }
    lines.replayed++
    clock.advance(nowMs)
    omitted += call.omitted
    trial.count(call.client, 1 + call.omitted)
    for (let i = 0; i <= call.omitted; i++) {
      const decision = limiter.decide(call, charge)
      if (client === undefined || client === charge.caller || client === call.client)
        counted.count(call, charge.caller, decision, nowMs)
    }
  }

  const progress = await startProgress(logs, stderr)
  const among = formatsOf(args)
  const read: ReadLog[] = logs.map((log) => ({ log, format: null, unreadable: 0 }))
  const onRead = (bytes: number): void => progress.increment(bytes)
  try {
    const calls = read.map((log) => readCalls(log, { among, stdin, skipped: lines, onRead }))
    const late = await passInOrder(calls, pass)
    const plans = trial.report()
    const unmatched = noRoute.report()
    return { config: file, logs: read, lines, unmatched, late, omitted, plans, ...counted.report(top) }
  } finally {
    progress.stop()
    await limiter.close()
  }
}

/** The formats that `--format` allows. */
function formatsOf(args: Args): readonly FormatName[] {
  const format = FORMAT_NAMES.find((name) => name === textOf(args, 'format'))
  return format === undefined ? FORMAT_NAMES : [format]
}

const createLineCounts = () => ({
  replayed: 0,
  /** Calls that were refused before any limit, such as with 401 or 404. */
  refusedBefore: 0,
  /** Requests that Sluice would answer with 400. */
  malformed: 0,
  /** Requests that Sluice would answer with 404 or 405. */
  unmatched: 0,
  /** Calls of routes that authenticate without a client, or of one that has no key. */
  unauthenticated: 0,
  unlimited: 0,
  /** Calls without the client, the address, the host or the whole path that a limit counts by. */
  lacking: 0,
  other: 0,
})

/** Maximum characters of a call that is shown. */
const MAX_SHOWN = 200

/** Creates the count of the calls of no route that succeeded in the record, and would be lost. */
function createNoRoute() {
  let succeeded = 0
  let first: string | null = null
  return {
    count({ method, requested, path = requested, decision, failed }: LoggedCall): void {
      if (decision !== 'admitted' || failed) return
      succeeded++
      first ??= `${method} ${path?.split('?')[0] ?? ''}`.slice(0, MAX_SHOWN)
    },
    report: () => ({ succeeded, first }),
  }
}

/** Creates the clock that shows the times of the calls. */
function createReplayedClock() {
  let nowMs = 0
  return {
    ...SYSTEM_CLOCK,
    now: () => nowMs,
    date: () => nowMs,
    advance(toMs: number): void {
      nowMs = toMs
    },
  }
}

/** Creates the limiter that decides calls, and ends and settles them. */
function createReplayedLimiter(clock: Clock) {
  const store = createMemoryStore(clock)
  const limiter = createLimiter(store, undefined, clock)
  /** Admitted calls that have a place of a limit of calls at once, or will be charged what they used. */
  const inProgress = new Set<{ endsAtMs: number; decision: Decision } & ChargedCall>()

  function endCalls(nowMs: number): void {
    for (const call of inProgress) {
      if (call.endsAtMs > nowMs) continue
      inProgress.delete(call)
      limiter.release(call.quotas, call.decision)
      limiter.settle(call.quotas, call.decision, call.usedOf)
    }
  }

  return {
    decide(call: LoggedCall, charge: ChargedCall): Decision {
      const { quotas, usedOf } = charge
      endCalls(clock.now())
      const decision = limiter.decide(quotas)
      const endsAtMs = call.decidedAt + call.tookMs
      const isSettled = decision.admitted && quotas.some((quota) => usedOf(quota) !== undefined)
      if (decision.lease !== undefined || isSettled) inProgress.add({ endsAtMs, decision, ...charge })
      return decision
    },
    close: () => store.close(),
  }
}

/** Formats a report: the clients, the limits, and why calls were replayed or not. */
export function describeReport(report: Report): string {
  const { more, lines, late, omitted, logs } = report
  const unreadable = logs.reduce((sum, log) => sum + log.unreadable, 0)
  const counts = [
    [lines.replayed, 'replayed'],
    [lines.unlimited, 'of routes without limits to replay'],
    [lines.unmatched, `of no route: Sluice would answer 404 or 405${describeNoRoute(report)}`],
    [lines.malformed, 'malformed, ambiguous or with a wrong parameter: Sluice would answer 400'],
    [
      lines.unauthenticated,
      'without a client, or with one that has no key, of routes that authenticate: Sluice would answer 401',
    ],
    [lines.refusedBefore, 'refused before any limit'],
    [lines.lacking, 'without the client, the address, the host or the path that a limit counts by'],
    [lines.other, 'not of requests'],
    [unreadable, 'could not be read: the figures lack them'],
    [omitted, 'refusals without a line of their own, counted with the next line'],
    [
      late.calls,
      `calls counted as decided up to ${Math.ceil(late.byMs / 1000)} s later, because they were logged too late`,
    ],
  ] as const
  const given = counts.filter(([count]) => count > 0)
  return formatParagraphs([
    describeClients(report),
    more > 0 ? `and ${pluralize(more, 'more client')}; --top lists them` : '',
    describePlans(report.plans),
    describeTotals(report),
    describeLimits(report),
    formatRows(['LINES', ''], given),
    describeFormats(logs),
  ])
}

/** Says which calls of no route succeeded in the record. */
function describeNoRoute({ unmatched: { succeeded, first } }: Report): string {
  return first === null ? '' : `; ${succeeded} of these had succeeded, the first ${JSON.stringify(first)}`
}

/** Says which formats of other programs were read. */
function describeFormats(logs: readonly ReadLog[]): string {
  const others = logs.filter(({ format }) => format !== null && format !== 'sluice')
  return others
    .map(({ log, format }) => `${titleOf(log)} was read as a log of the format ${format}.`)
    .join('\n')
}

function describeUnreadable({ log, format, unreadable, first }: ReadLog): string {
  const lines = unreadable === 1 ? '1 line' : `${unreadable} lines`
  return `${titleOf(log)}: ${lines} could not be read as ${format}; the first, line ${first?.line}, ${first?.why}`
}

/** Draws a bar if `stream` is a terminal. The size of standard input is not known. */
async function startProgress(logs: readonly string[], stream: NodeJS.WritableStream) {
  const files = await Promise.all(logs.map((log) => stat(log).catch(() => undefined)))
  const total = files.reduce((sum, file) => sum + (file?.size ?? 0), 0)
  const format = '[{bar}] {value} of {total} bytes, {eta_formatted} left'
  // With `linewrap`, the terminal keeps its settings, also after Ctrl-C; lines are cut to its width.
  const progress = new SingleBar({ format, stream, clearOnComplete: true, linewrap: true })
  progress.start(total, 0)
  return progress
}
