/**
 * The admitted calls of one key, exactly: an ordered log of (time, calls ever admitted up to and with it), kept in a ring.
 * The same format and the same steps as charge.lua. Times are microseconds on one clock.
 */
export interface Ring {
  /** Time of its last call, and cumulative count, of each slot, alternating. */
  slots: number[]
  /** The slot of the oldest calls held. */
  first: number
  /** Slots in use, from `first` on. */
  held: number
  /** Calls ever admitted. */
  total: number
  /** Of these, calls no longer held. */
  gone: number
  /** Time of the newest slot. */
  newest: number
}

/** A ring at one instant. */
export interface View {
  /** Leading slots that have left the window. */
  readonly left: number
  /** Calls still counted. */
  readonly used: number
}

/** Above this limit, the calls of a thousandth of the window share a slot, and count until its last one leaves. */
const EXACT = 1000
const SMALLEST = 4

export function createRing(): Ring {
  return { slots: [], first: 0, held: 0, total: 0, gone: 0, newest: 0 }
}

/** Microseconds that a slot spans: 1 where every call keeps its own time. */
function quantum(limit: number, windowUs: number): number {
  return limit > EXACT ? Math.ceil(windowUs / EXACT) : 1
}

/** True if the clock went back by more than a window, so that the calls held would lock the key for longer than one. */
export function isAhead(ring: Ring, windowUs: number, nowUs: number): boolean {
  return ring.held > 0 && ring.newest - nowUs > windowUs
}

/** Moves all calls held to now. */
export function bringBack(ring: Ring, nowUs: number): void {
  ring.first = 0
  ring.held = 1
  ring.newest = nowUs
  ring.slots[0] = nowUs
  ring.slots[1] = ring.total
}

/** Returns what is still counted at an instant; changes nothing. */
export function viewAt(ring: Ring, windowUs: number, nowUs: number): View {
  const { held } = ring
  const horizon = nowUs - windowUs
  if (held === 0 || time(ring, 0) > horizon) return { left: 0, used: ring.total - ring.gone }
  // Galloping: what has left since the last call is mostly little.
  let left = 1
  let step = 1
  while (left + step <= held && time(ring, left + step - 1) <= horizon) {
    left += step
    step *= 2
  }
  let beyond = Math.min(left + step, held + 1)
  while (beyond - left > 1) {
    const middle = (left + beyond) >> 1
    if (time(ring, middle - 1) <= horizon) left = middle
    else beyond = middle
  }
  return { left, used: ring.total - count(ring, left - 1) }
}

/** Adds calls now, after dropping the slots that left the window. */
export function add(
  ring: Ring,
  { left }: View,
  limit: number,
  windowUs: number,
  nowUs: number,
  calls = 1,
): void {
  if (left > 0) {
    ring.gone = count(ring, left - 1)
    ring.first = (ring.first + left) % capacity(ring)
    ring.held -= left
  }
  const span = quantum(limit, windowUs)
  ring.total += calls
  if (
    ring.held > 0 &&
    (ring.newest >= nowUs || Math.floor(ring.newest / span) === Math.floor(nowUs / span))
  ) {
    ring.newest = Math.max(ring.newest, nowUs)
    const newest = slotAt(ring, ring.held - 1)
    ring.slots[newest] = ring.newest
    ring.slots[newest + 1] = ring.total
    return
  }
  if (ring.held === capacity(ring)) grow(ring, Math.min(limit, EXACT + 2))
  const slot = slotAt(ring, ring.held)
  ring.slots[slot] = nowUs
  ring.slots[slot + 1] = ring.total
  ring.held++
  ring.newest = nowUs
}

/** Returns when the remaining calls next grow: the oldest call leaves, or the last in excess of the limit. */
export function growsAt(
  ring: Ring,
  { left, used }: View,
  limit: number,
  windowUs: number,
  nowUs: number,
): number {
  if (limit === 0) return nowUs + windowUs
  if (used === 0) return nowUs
  if (used < limit && ring.held - left === 1) {
    // Its one slot may still take calls, until its span ends.
    const span = quantum(limit, windowUs)
    return (Math.floor(time(ring, left) / span) + 1) * span - 1 + windowUs
  }
  if (used <= limit) return time(ring, left) + windowUs
  // A lowered limit: so many must leave that fewer than the limit stay.
  const enough = ring.total - limit + 1
  let low = left
  let high = ring.held - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if (count(ring, middle) >= enough) high = middle
    else low = middle + 1
  }
  return time(ring, low) + windowUs
}

function grow(ring: Ring, enough: number): void {
  const { held } = ring
  const capacity = Math.max(held + 1, Math.min(enough, Math.max(SMALLEST, 2 * held)))
  const slots = Array.from({ length: 2 * capacity }, () => 0)
  for (let i = 0; i < held; i++) {
    slots[2 * i] = time(ring, i)
    slots[2 * i + 1] = count(ring, i)
  }
  ring.slots = slots
  ring.first = 0
}

function capacity(ring: Ring): number {
  return ring.slots.length / 2
}

function slotAt(ring: Ring, index: number): number {
  return (2 * (ring.first + index)) % ring.slots.length
}

function time(ring: Ring, index: number): number {
  return ring.slots[slotAt(ring, index)]!
}

function count(ring: Ring, index: number): number {
  return ring.slots[slotAt(ring, index) + 1]!
}
