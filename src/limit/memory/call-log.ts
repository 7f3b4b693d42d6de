import { search } from '../../runtime/search.ts'
import { MAX_EXACT, type Window } from '../quota.ts'

/**
 * An exact log of the admitted calls of one key, with the slots and the algorithm of charge.lua. A
 * call with a cost of n counts as n calls. Times are microseconds of one clock.
 */
export class CallLog {
  /**
   * Two numbers for each slot, oldest first: the time of its last call, and the calls ever admitted
   * up to that call.
   */
  readonly slots: number[] = []
  /** Leading slots that are dropped, but not yet removed from `slots`. */
  first = 0
  /** Calls ever admitted. */
  total = 0
  /** Calls of the dropped slots. */
  expiredCalls = 0
  /** Time at which the newest call leaves the window of the last `add`. */
  expiresAtUs = 0
}

/** The window of a quota at one instant. */
export interface Frame {
  readonly nowUs: number
  readonly limit: number
  /** The calls after this time count. */
  readonly horizonUs: number
  readonly windowUs: number
  /** The time at which all calls leave; undefined if each leaves on its own. */
  readonly endUs?: number
  /** The length of time whose calls share a slot; those of a calendar period share one in any case. */
  readonly spanUs: number
}

/** Returns the window of a limit, at a time of the log's clock that is `dateMs` since the epoch. */
export function frameAt(limit: number, { windowMs, calendar }: Window, nowUs: number, dateMs: number): Frame {
  const windowUs = windowMs * 1000
  const spanUs = limit > MAX_EXACT ? Math.ceil(windowUs / MAX_EXACT) : 1
  if (calendar === undefined) return { nowUs, limit, horizonUs: nowUs - windowUs, windowUs, spanUs }
  const { startMs, endMs } = calendar.periodAt(dateMs)
  const [startUs, endUs] = [startMs, endMs].map((ms) => nowUs + Math.round((ms - dateMs) * 1000))
  return { nowUs, limit, horizonUs: startUs! - 1, windowUs, endUs: endUs!, spanUs }
}

const heldSlots = ({ slots, first }: CallLog): number => slots.length / 2 - first
const timeOf = ({ slots, first }: CallLog, slot: number): number => slots[2 * (first + slot)]!
const callsUpTo = ({ slots, first, expiredCalls }: CallLog, slot: number): number =>
  slot < 0 ? expiredCalls : slots[2 * (first + slot) + 1]!

/** Returns the slots that have left the window, but are not dropped. */
function expiredSlots(log: CallLog, horizonUs: number): number {
  const held = heldSlots(log)
  if (held === 0 || timeOf(log, 0) > horizonUs) return 0
  return search(1, held, (slot) => timeOf(log, slot) > horizonUs)
}

/** Returns the calls in the window; changes nothing. */
export const usedIn = (log: CallLog, { horizonUs }: Pick<Frame, 'horizonUs'>): number =>
  log.total - callsUpTo(log, expiredSlots(log, horizonUs) - 1)

/** Adds a call, and drops the slots that have left the window. */
export function add(log: CallLog, { nowUs, horizonUs, windowUs, endUs, spanUs }: Frame, cost = 1) {
  const { slots } = log
  const expired = expiredSlots(log, horizonUs)
  if (expired > 0) {
    log.expiredCalls = callsUpTo(log, expired - 1)
    log.first += expired
    // Remove dropped slots when they are half of the array, so that each slot is moved once on average.
    if (log.first >= heldSlots(log)) {
      slots.splice(0, 2 * log.first)
      log.first = 0
    }
  }
  const held = heldSlots(log)
  const last = held > 0 ? timeOf(log, held - 1) : Number.NEGATIVE_INFINITY
  const atUs = Math.max(last, nowUs)
  log.total += cost
  log.expiresAtUs = endUs ?? atUs + windowUs
  const isSameSpan =
    endUs === undefined
      ? Math.floor(last / spanUs) === Math.floor(atUs / spanUs)
      : held > 0 && last >= endUs === atUs >= endUs
  if (isSameSpan) slots.length -= 2
  slots.push(atUs, log.total)
}

/**
 * Returns when the remaining calls of a limit next grow: when the oldest call leaves, or the last
 * call in excess of the limit.
 */
export function growsAt(log: CallLog, frame: Frame, limit = frame.limit): number {
  const { nowUs, horizonUs, windowUs, endUs, spanUs } = frame
  if (endUs !== undefined) return endUs
  if (limit <= 0) return nowUs + windowUs
  const oldest = expiredSlots(log, horizonUs)
  const used = log.total - callsUpTo(log, oldest - 1)
  if (used === 0) return nowUs
  const held = heldSlots(log)
  if (used < limit && held - oldest === 1) {
    // The only slot may still get calls, until its span ends.
    return (Math.floor(timeOf(log, oldest) / spanUs) + 1) * spanUs - 1 + windowUs
  }
  if (used <= limit) return timeOf(log, oldest) + windowUs
  // After the limit was lowered, find the slot whose expiry leaves fewer calls than `limit`.
  const leaves = search(oldest, held - 1, (slot) => callsUpTo(log, slot) > log.total - limit)
  return timeOf(log, leaves) + windowUs
}

/**
 * Adds points to the call of an instant, or takes as many of its own from it; does nothing if its
 * slot has left. The slot may be later than the call by `lateUs`.
 */
export function settle(log: CallLog, points: number, atUs: number, lateUs: number): void {
  const { slots } = log
  const held = heldSlots(log)
  // From the newest on: most calls are settled soon.
  let slot = held
  while (slot > 0 && timeOf(log, slot - 1) >= atUs) slot--
  if (slot === held || timeOf(log, slot) > atUs + lateUs) return
  const calls = callsUpTo(log, slot) - callsUpTo(log, slot - 1)
  const change = Math.max(points, -calls)
  for (let i = log.first + slot; i < log.first + held; i++) slots[2 * i + 1]! += change
  log.total += change
  if (calls + change === 0) slots.splice(2 * (log.first + slot), 2)
}
