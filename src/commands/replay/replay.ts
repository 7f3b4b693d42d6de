import type { Loaded } from '../../config/load.ts'
import type { Decision } from '../../limit/decision.ts'
import { createLimiter } from '../../limit/limiter.ts'
import { MemoryStore } from '../../limit/memory/store.ts'
import { type LoggedCall, readAccessLine } from './logged-call.ts'
import { createOrder, merge } from './in-order.ts'
import { type Log, openLogs } from './logs.ts'
import { createProgress, type Screen } from './progress.ts'
import { createCharges } from './replayed-routes.ts'
import { type LineCounts, type Report, reportOf } from './report.ts'
import { createTallies } from './tally.ts'

export interface ReplayOptions {
  /** Files of the access log, plain or gzip; `-` is standard input. */
  readonly logs: readonly string[]
  /** Whose limits are tried, and where they were read. */
  readonly config: Loaded
  /** Most clients that are listed. */
  readonly top: number
  /** The one client that is told of, in place of all. */
  readonly client?: string | undefined
  /** Where the progress is drawn. */
  readonly screen: Screen
}

/**
 * Sends recorded calls through the limits of a configuration, at the instants at which they were decided. Memory grows with
 * the clients in the logs and the keys that are active at a time. Rejects with words for the operator where a log cannot be read.
 */
export async function replay({ logs, config, top, client, screen }: ReplayOptions): Promise<Report> {
  const lines: LineCounts = {
    replayed: 0,
    refusedBefore: 0,
    unmatched: 0,
    unlimited: 0,
    lacking: 0,
    other: 0,
    overlong: 0,
  }
  let bytesRead = 0
  let linesRead = 0
  const opened = await openLogs(logs, {
    bytes: (count) => (bytesRead += count),
    overlong: () => lines.overlong++,
  })
  const progress = createProgress(screen, totalOf(opened))

  const { limits } = config.config
  const chargesOf = createCharges(config.config)
  const names = limits.map(({ name }) => name)
  const tallies = createTallies(names, client)
  let clockMs = 0
  const clock = { monotonicMs: () => clockMs, wallMs: (monotonicMs: number) => monotonicMs }
  const store = new MemoryStore({ clock })
  const limiter = createLimiter({ store, now: clock.monotonicMs })

  const order = createOrder((call, nowMs) => {
    const charged = chargesOf(call, nowMs)
    if (typeof charged === 'string') {
      lines[charged]++
      return
    }
    lines.replayed++
    clockMs = nowMs
    // The memory store decides at once.
    tallies.note(call, limiter.decide(charged.quotas) as Decision, nowMs)
  })

  async function* callsOf(log: Log): AsyncGenerator<readonly LoggedCall[]> {
    for await (const some of log.lines()) {
      const calls: LoggedCall[] = []
      for (const line of some) {
        if (line === '') continue
        linesRead++
        const call = readAccessLine(line)
        if (call === undefined) lines.other++
        else calls.push(call)
      }
      progress.at(bytesRead, linesRead)
      yield calls
    }
  }

  try {
    await merge(
      opened.map((log) => callsOf(log)),
      (call) => {
        if (call.arrived) order.take(call)
        else lines.refusedBefore++
      },
    )
    order.end()
  } finally {
    progress.end()
    await store.close()
  }
  return reportOf({ tallies, lines, late: order.late() }, config.config, config.file, top)
}

/** Undefined where one of them is a pipe. */
function totalOf(logs: readonly Log[]): number | undefined {
  let total = 0
  for (const { size } of logs) {
    if (size === undefined) return undefined
    total += size
  }
  return total
}
