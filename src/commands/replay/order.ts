import type { LoggedCall } from './access-line.ts'

/** Passes on the calls of several logs by the time of their lines, by which each log is sorted. */
export async function merge(
  logs: readonly AsyncIterator<LoggedCall, void>[],
  take: (call: LoggedCall) => void,
): Promise<void> {
  const heads: { readonly log: AsyncIterator<LoggedCall, void>; call: LoggedCall }[] = []
  for (const log of logs) {
    const { value } = await log.next()
    if (value !== undefined) heads.push({ log, call: value })
  }
  while (heads.length > 0) {
    const head = heads.reduce((first, one) => (one.call.loggedAt < first.call.loggedAt ? one : first))
    take(head.call)
    const { value } = await head.log.next()
    if (value === undefined) heads.splice(heads.indexOf(head), 1)
    else head.call = value
  }
}

/** How long a decision may precede its line to be put in order, and most calls that wait for that. */
const WINDOW_MS = 60_000
const MOST_CALLS = 400_000
/** The part of both by which they are exceeded, so that the waiting calls are sorted only now and then. */
const SLACK = 0.1

/** Calls in the order of their decisions. */
export interface Order {
  take(call: LoggedCall): void
  /** Passes on what still waits. */
  end(): void
  /** How many calls came after later ones had been passed on, and by how much at most. */
  late(): { readonly calls: number; readonly byMs: number }
}

/**
 * Puts calls, which are logged as their requests end, into the order in which they were decided, and passes each on with
 * that instant. A call that comes too late for that counts as decided when the last one was.
 */
export function createOrder(
  pass: (call: LoggedCall, nowMs: number) => void,
  windowMs = WINDOW_MS,
  mostCalls = MOST_CALLS,
): Order {
  const waiting: LoggedCall[] = []
  const late = { calls: 0, byMs: 0 }
  let newestAt = -Infinity
  let sortedAt = -Infinity
  let nowMs = -Infinity

  function passBefore(decidedBefore: number, mostLeft: number): void {
    waiting.sort((a, b) => a.decidedAt - b.decidedAt)
    const rest = waiting.findIndex(({ decidedAt }) => decidedAt >= decidedBefore)
    const due = rest === -1 ? waiting.length : rest
    for (const call of waiting.splice(0, Math.max(due, waiting.length - mostLeft))) {
      nowMs = Math.max(nowMs, call.decidedAt)
      pass(call, nowMs)
    }
    sortedAt = newestAt
  }

  return {
    take(call) {
      if (call.decidedAt < nowMs) {
        late.calls++
        late.byMs = Math.max(late.byMs, nowMs - call.decidedAt)
      }
      waiting.push(call)
      newestAt = Math.max(newestAt, call.loggedAt)
      const isDue = newestAt > sortedAt + windowMs * SLACK || waiting.length > mostCalls * (1 + SLACK)
      if (isDue) passBefore(newestAt - windowMs, mostCalls)
    },
    end: () => passBefore(Infinity, 0),
    late: () => late,
  }
}
