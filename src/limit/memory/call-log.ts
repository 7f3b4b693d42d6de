/** The admitted calls of one key, exactly; the same slots and steps as in charge.lua. Times are microseconds on one clock. */
export interface CallLog {
  /** Time of its last call, and calls ever admitted up to and with it, of each slot, alternating, oldest first. */
  readonly slots: number[]
  /** Leading slots that are not held any more. */
  first: number
  /** Calls ever admitted. */
  total: number
  /** Of these, calls no longer held. */
  gone: number
}

/** A log at one instant. */
export interface View {
  /** Slots held that have left the window. */
  readonly left: number
  /** Calls still counted. */
  readonly used: number
}

/** Above this limit, the calls of a thousandth of the window share a slot, and count until its last one leaves. */
const EXACT = 1000

export function createCallLog(): CallLog {
  return { slots: [], first: 0, total: 0, gone: 0 }
}

/** Microseconds that a slot spans: 1 where every call keeps its own time. */
function quantum(limit: number, windowUs: number): number {
  return limit > EXACT ? Math.ceil(windowUs / EXACT) : 1
}

/** Returns the time of the newest slot, -Infinity if none is held. */
export function newest(log: CallLog): number {
  return held(log) > 0 ? time(log, held(log) - 1) : Number.NEGATIVE_INFINITY
}

/** Returns what is still counted at an instant; changes nothing. */
export function viewAt(log: CallLog, windowUs: number, nowUs: number): View {
  const horizon = nowUs - windowUs
  if (held(log) === 0 || time(log, 0) > horizon) return { left: 0, used: log.total - log.gone }
  // Galloping: what has left since the last call is mostly little.
  let left = 1
  let step = 1
  while (left + step <= held(log) && time(log, left + step - 1) <= horizon) {
    left += step
    step *= 2
  }
  let beyond = Math.min(left + step, held(log) + 1)
  while (beyond - left > 1) {
    const middle = (left + beyond) >> 1
    if (time(log, middle - 1) <= horizon) left = middle
    else beyond = middle
  }
  return { left, used: log.total - count(log, left - 1) }
}

/** Adds calls now, after dropping the slots that left the window. */
export function add(
  log: CallLog,
  { left }: View,
  limit: number,
  windowUs: number,
  nowUs: number,
  calls = 1,
): void {
  const { slots } = log
  if (left > 0) {
    log.gone = count(log, left - 1)
    log.first += left
    // Only once they are half of it, so that each is moved once on average.
    if (log.first >= held(log)) {
      slots.splice(0, 2 * log.first)
      log.first = 0
    }
  }
  const span = quantum(limit, windowUs)
  const last = newest(log)
  log.total += calls
  if (last >= nowUs || Math.floor(last / span) === Math.floor(nowUs / span)) {
    slots[slots.length - 2] = Math.max(last, nowUs)
    slots[slots.length - 1] = log.total
  } else {
    slots.push(nowUs, log.total)
  }
}

/** Returns when the remaining calls next grow: the oldest call leaves, or the last in excess of the limit. */
export function growsAt(
  log: CallLog,
  { left, used }: View,
  limit: number,
  windowUs: number,
  nowUs: number,
): number {
  if (limit === 0) return nowUs + windowUs
  if (used === 0) return nowUs
  if (used < limit && held(log) - left === 1) {
    // Its one slot may still take calls, until its span ends.
    const span = quantum(limit, windowUs)
    return (Math.floor(time(log, left) / span) + 1) * span - 1 + windowUs
  }
  // Of a lowered limit, so many must leave that fewer than the limit stay.
  let low = left
  let high = used > limit ? held(log) - 1 : left
  while (low < high) {
    const middle = (low + high) >> 1
    if (count(log, middle) > log.total - limit) high = middle
    else low = middle + 1
  }
  return time(log, low) + windowUs
}

function held({ slots, first }: CallLog): number {
  return slots.length / 2 - first
}

function time({ slots, first }: CallLog, index: number): number {
  return slots[2 * (first + index)]!
}

function count({ slots, first }: CallLog, index: number): number {
  return slots[2 * (first + index) + 1]!
}
