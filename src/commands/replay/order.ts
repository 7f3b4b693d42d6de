import type { LoggedCall } from './formats/call.ts'

/** Minimum number of calls that are buffered for sorting; the maximum is twice that, 160 MB. */
const SORTED_CALLS = 100_000
/** Maximum time by which a line may come too late to be sorted: for more, the result would be wrong. */
const MAX_LATE_MS = 60_000

type Batches = AsyncIterator<readonly LoggedCall[], void>

/**
 * Passes on the calls of all logs, each sorted by the ends of its requests, in the order of their
 * decisions, with their instants. A call that comes after a later one gets the instant of that one;
 * throws if it ended more than a minute before that: its log is not sorted. Returns the number of such late calls and their maximum
 * delay.
 */
export async function passInOrder(
  logs: readonly Batches[],
  pass: (call: LoggedCall, nowMs: number) => void,
  sortedCalls = SORTED_CALLS,
) {
  const open = (await Promise.all(logs.map(openLog))).filter((one) => one !== undefined)
  const late = { calls: 0, byMs: 0 }
  const buffered: LoggedCall[] = []
  let nowMs = -Infinity

  function passAllBut(kept: number): void {
    buffered.sort((a, b) => a.decidedAt - b.decidedAt)
    for (const call of buffered.splice(0, buffered.length - kept)) {
      if (call.decidedAt < nowMs) {
        late.calls++
        late.byMs = Math.max(late.byMs, nowMs - call.decidedAt)
        // A call that took long has its line in order.
        if (nowMs - call.loggedAt > MAX_LATE_MS) throw new Error(tooLate(nowMs - call.loggedAt))
      }
      nowMs = Math.max(nowMs, call.decidedAt)
      pass(call, nowMs)
    }
  }

  while (open.length > 0) {
    const first = open.reduce((one, other) => (other.startsAt < one.startsAt ? other : one))
    for (const call of first.calls) buffered.push(call)
    if (!(await readNext(first))) open.splice(open.indexOf(first), 1)
    if (buffered.length >= 2 * sortedCalls) passAllBut(sortedCalls)
  }
  passAllBut(0)
  return late
}

/** A log with its next calls, and the instant of the first of them. */
interface OpenLog {
  readonly log: Batches
  calls: readonly LoggedCall[]
  startsAt: number
}

/** Reads the first calls of a log, so that logs are read in the order of time; undefined if it has none. */
async function openLog(log: Batches): Promise<OpenLog | undefined> {
  const opened = { log, calls: [], startsAt: 0 }
  return (await readNext(opened)) ? opened : undefined
}

/** Reads the next calls of a log; returns false at its end. */
async function readNext(open: OpenLog): Promise<boolean> {
  for (;;) {
    const { value: calls } = await open.log.next()
    if (calls === undefined) return false
    if (calls.length === 0) continue
    open.calls = calls
    open.startsAt = calls.reduce((first, { loggedAt }) => Math.min(first, loggedAt), Infinity)
    return true
  }
}

const tooLate = (byMs: number): string =>
  `the lines go back in time by ${Math.ceil(byMs / 1000)} s, further than replay sorts. ` +
  'Give several logs as separate files, in any order, not through cat; give a log with the newest line first through tac.'
