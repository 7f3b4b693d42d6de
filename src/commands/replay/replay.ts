import { stat } from 'node:fs/promises'
import { SingleBar } from 'cli-progress'
import type { Loaded } from '../../config/load.ts'
import type { Decision } from '../../limit/decision.ts'
import { createLimiter } from '../../limit/limiter.ts'
import { createMemoryStore } from '../../limit/memory/store.ts'
import type { Quota } from '../../limit/quota.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { type Args, positionals, textOf, UsageError, wholeOf } from '../args.ts'
import { load } from '../configuration.ts'
import { type Io, print } from '../io.ts'
import { formatParagraphs, formatRows, pluralize } from '../format.ts'
import { createCharges } from './charges.ts'
import { type LoggedCall, passInOrder, readAccessLine, readLines } from './logs.ts'
import { createReport, describeClients, describeLimits, describeTotals } from './report.ts'

/** Prints the decisions that the limits of a configuration would have made for the calls of access logs. */
export async function run(args: Args, io: Io): Promise<void> {
  const logs = positionals(args)
  if (logs.length === 0) throw new UsageError('Which log? Give its files, or - for standard input.')
  if (logs.includes('-') && args['config'] === '-')
    throw new UsageError('Standard input is the log or the configuration, not both.')
  print(io, args, await replay(await load(args, io), logs, args, io), describeReport)
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
  const client = textOf(args, 'client')
  const lines = {
    replayed: 0,
    /** Calls that were refused before any limit, such as with 401 or 404. */
    refusedBefore: 0,
    unmatched: 0,
    unlimited: 0,
    /** Calls without the client, the address or the whole path that a limit counts by. */
    lacking: 0,
    other: 0,
  }
  let omitted = 0
  let clockMs = 0
  const clock = { ...SYSTEM_CLOCK, now: () => clockMs, date: () => clockMs }
  const store = createMemoryStore(clock)
  const limiter = createLimiter(store, undefined, clock)
  const quotasOf = createCharges(config)
  const { count, report } = createReport(config)
  /** Calls that have a place of a limit of calls at once. */
  const inProgress = new Set<{ endsAtMs: number; quotas: readonly Quota[]; decision: Decision }>()

  function endCalls(nowMs: number): void {
    for (const call of inProgress) {
      if (call.endsAtMs > nowMs) continue
      inProgress.delete(call)
      limiter.release(call.quotas, call.decision)
    }
  }

  function pass(call: LoggedCall, nowMs: number): void {
    const quotas = quotasOf(call, nowMs)
    lines[typeof quotas === 'string' ? quotas : 'replayed']++
    if (typeof quotas === 'string') return
    clockMs = nowMs
    omitted += call.omitted
    const countsSuccess = quotas.some((quota) => quota.countsSuccess)
    for (let i = 0; i <= call.omitted; i++) {
      endCalls(nowMs)
      // The memory store decides synchronously.
      const decision = limiter.decide(quotas) as Decision
      if (client === undefined || client === call.client) count(call, decision, nowMs)
      if (countsSuccess && decision.admitted && call.failed) limiter.giveBack(quotas, decision)
      const endsAtMs = call.decidedAt + call.tookMs
      if (decision.lease !== undefined) inProgress.add({ endsAtMs, quotas, decision })
    }
  }
  const progress = await startProgress(logs, stderr)
  async function* callsOf(log: string): AsyncGenerator<readonly LoggedCall[], void> {
    for await (const batch of readLines(log, stdin, (bytes) => progress.increment(bytes))) {
      const read = batch.filter(Boolean).map(readAccessLine)
      for (const call of read) if (typeof call === 'string') lines[call]++
      yield read.filter((call) => typeof call !== 'string')
    }
  }
  try {
    const late = await passInOrder(logs.map(callsOf), pass)
    return { config: file, lines, late, omitted, ...report(top) }
  } finally {
    progress.stop()
    await store.close()
  }
}

/** Formats a report: the clients, the limits, and why calls were replayed or not. */
export function describeReport(report: Report): string {
  const { more, lines, late, omitted } = report
  const tooLate = `up to ${Math.ceil(late.byMs / 1000)} s too late: give one log per instance`
  const counts = [
    [lines.replayed, 'replayed'],
    [lines.unlimited, 'of routes without limits to replay'],
    [lines.unmatched, 'of no route'],
    [lines.refusedBefore, 'refused before any limit'],
    [lines.lacking, 'without the client, the address or the path that a limit counts by'],
    [lines.other, 'not of an access log with "log.format: json"'],
    [omitted, 'refusals without a line of their own, counted with the next line'],
    [late.calls, `calls counted as decided later, because they were logged ${tooLate}`],
  ] as const
  const given = counts.filter(([count]) => count > 0)
  return formatParagraphs([
    describeClients(report),
    more > 0 ? `and ${pluralize(more, 'more client')}; --top lists them` : '',
    describeTotals(report),
    describeLimits(report),
    formatRows(['LINES', ''], given),
  ])
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
