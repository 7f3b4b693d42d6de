import type { Quota } from '../limit.ts'

/** An exact log of the admitted calls of one key, with the slots and the algorithm of charge.lua. Times are microseconds of one clock. */
export interface CallLog {
  /** Two numbers for each slot, oldest first: the time of its last call, and the calls ever admitted up to that call. */
  readonly slots: number[]
  /** Leading slots that are dropped, but not yet removed from `slots`. */
  first: number
  /** Calls ever admitted. */
  total: number
  /** Calls of the dropped slots. */
  expiredCalls: number
  /** Time at which the newest call leaves the window of the last `add`. */
  expiresAtUs: number
}

/** The window of a quota at one instant. */
export interface Frame {
  /** The calls after this time count. */
  readonly horizonUs: number
  readonly windowUs: number
  /** The time at which all calls leave; undefined if each leaves on its own. */
  readonly endUs?: number
  /** The length of time whose calls share a slot; those of a calendar period share one in any case. */
  readonly spanUs: number
}

/** A log at one instant. */
export interface View {
  /** Slots that have left the window, but are not dropped. */
  readonly expiredSlots: number
  /** Calls in the window. */
  readonly used: number
}

/** Maximum limit whose calls have slots of their own. Above it, the calls of a thousandth of the window share a slot, and its last call's time. */
const MAX_EXACT = 1000

export function createCallLog(): CallLog {
  return { slots: [], first: 0, total: 0, expiredCalls: 0, expiresAtUs: 0 }
}

/** Returns the window of a quota, at a time of the log's clock that is `epochMs`. */
export function frameAt({ limit, windowMs, calendar }: Windowed, nowUs: number, epochMs: number): Frame {
  const windowUs = windowMs * 1000
  const spanUs = limit > MAX_EXACT ? Math.ceil(windowUs / MAX_EXACT) : 1
  if (calendar === undefined) return { horizonUs: nowUs - windowUs, windowUs, spanUs }
  const { startMs, endMs } = calendar.periodAt(epochMs)
  const [startUs, endUs] = [startMs, endMs].map((ms) => nowUs + Math.round((ms - epochMs) * 1000))
  return { horizonUs: startUs! - 1, windowUs, endUs: endUs!, spanUs }
}
type Windowed = Pick<Quota, 'limit' | 'windowMs' | 'calendar'>

const heldSlots = ({ slots, first }: CallLog): number => slots.length / 2 - first
const timeOf = ({ slots, first }: CallLog, slot: number): number => slots[2 * (first + slot)]!
const callsUpTo = ({ slots, first }: CallLog, slot: number): number => slots[2 * (first + slot) + 1]!

/** Returns the calls in the window at an instant; changes nothing. */
export function viewAt(log: CallLog, { horizonUs }: Pick<Frame, 'horizonUs'>): View {
  const held = heldSlots(log)
  if (held === 0 || timeOf(log, 0) > horizonUs) return { expiredSlots: 0, used: log.total - log.expiredCalls }
  // A galloping search: few slots expire between two calls.
  let expiredSlots = 1
  let step = 1
  while (expiredSlots + step <= held && timeOf(log, expiredSlots + step - 1) <= horizonUs) {
    expiredSlots += step
    step *= 2
  }
  for (; step > 0; step >>= 1) {
    if (expiredSlots + step <= held && timeOf(log, expiredSlots + step - 1) <= horizonUs) expiredSlots += step
  }
  return { expiredSlots, used: log.total - callsUpTo(log, expiredSlots - 1) }
}

/** Adds calls now, and drops the slots that have left the window. Returns the new view. */
export function add(log: CallLog, frame: Frame, nowUs: number): View {
  const { slots } = log
  const { windowUs, endUs, spanUs } = frame
  const { expiredSlots } = viewAt(log, frame)
  if (expiredSlots > 0) {
    log.expiredCalls = callsUpTo(log, expiredSlots - 1)
    log.first += expiredSlots
    // Remove dropped slots when they are half of the array, so that each slot is moved once on average.
    if (log.first >= heldSlots(log)) {
      slots.splice(0, 2 * log.first)
      log.first = 0
    }
  }
  const held = heldSlots(log)
  const last = held > 0 ? timeOf(log, held - 1) : Number.NEGATIVE_INFINITY
  const atUs = Math.max(last, nowUs)
  log.total++
  log.expiresAtUs = endUs ?? atUs + windowUs
  const isSameSpan =
    endUs === undefined
      ? Math.floor(last / spanUs) === Math.floor(atUs / spanUs)
      : held > 0 && last >= endUs === atUs >= endUs
  if (isSameSpan) {
    slots[slots.length - 2] = atUs
    slots[slots.length - 1] = log.total
  } else {
    slots.push(atUs, log.total)
  }
  return { expiredSlots: 0, used: log.total - log.expiredCalls }
}

/** Returns when the remaining calls next grow: when the oldest call leaves, or the last call in excess of the limit. */
export function growsAt(log: CallLog, view: View, limit: number, frame: Frame, nowUs: number): number {
  const { expiredSlots, used } = view
  const { windowUs, endUs, spanUs } = frame
  if (endUs !== undefined) return endUs
  if (limit === 0) return nowUs + windowUs
  if (used === 0) return nowUs
  const held = heldSlots(log)
  if (used < limit && held - expiredSlots === 1) {
    // The only slot may still get calls, until its span ends.
    return (Math.floor(timeOf(log, expiredSlots) / spanUs) + 1) * spanUs - 1 + windowUs
  }
  // After the limit was lowered, find the slot whose expiry leaves fewer calls than `limit`.
  let low = expiredSlots
  let high = used > limit ? held - 1 : expiredSlots
  while (low < high) {
    const middle = (low + high) >> 1
    if (callsUpTo(log, middle) > log.total - limit) high = middle
    else low = middle + 1
  }
  return timeOf(log, low) + windowUs
}

/** Returns the calls that the log holds, as pairs of an instant and the calls at it, oldest first. */
export function callsOf(log: CallLog): readonly (readonly [atUs: number, calls: number])[] {
  let before = log.expiredCalls
  return Array.from({ length: heldSlots(log) }, (_, slot) => {
    const calls = callsUpTo(log, slot) - before
    before += calls
    return [timeOf(log, slot), calls] as const
  })
}

/** Drops the oldest calls: the first `total` that were ever admitted. */
export function dropUpTo(log: CallLog, total: number): void {
  while (heldSlots(log) > 0 && callsUpTo(log, 0) <= total) log.first++
  log.expiredCalls = Math.max(log.expiredCalls, total)
}

/** Takes back the newest call, if it counts. */
export function takeBack(log: CallLog, frame: Frame): void {
  if (viewAt(log, frame).used === 0) return
  log.total--
  const last = heldSlots(log) - 1
  if (log.total === (last === 0 ? log.expiredCalls : callsUpTo(log, last - 1))) log.slots.length -= 2
  else log.slots[log.slots.length - 1] = log.total
}
