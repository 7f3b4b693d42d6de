import { togetherMs } from '../changes.ts'
import { mostAccesses, SPREAD_MS } from './accesses.ts'
import {
  between,
  type Case,
  clockSteps,
  countBetween,
  gatewaysAt,
  MICROSECOND_MS,
  overlapping,
  steadyRule,
  type Timed,
  type Violation,
  type Witness,
} from './evidence.ts'
import { periodOf } from './periods.ts'
import { isSettled, mayBeSettled } from './settled.ts'

/** The calls up to a refusal that may count for it: with and without the knowledge of their callers. */
type Count = (one: Case, refused: Witness, windowMs: number) => number

/** Returns those of many calls, in the order of their asking, that may be in the window of a refusal. */
const inWindow = <T extends Timed>(calls: readonly T[], refused: Witness, windowMs: number): readonly T[] =>
  between(calls, refused.askedAtMs - windowMs - MICROSECOND_MS, refused.toldAtMs)

/** Each doubtful call counts once, and once more if it was admitted. */
const countCalls: Count = (one, refused, windowMs) => {
  const { admitted, doubts, owed } = one
  const fromMs = refused.askedAtMs - windowMs - MICROSECOND_MS
  const count = (points: readonly Timed[]): number => countBetween(points, fromMs, refused.toldAtMs)
  const settled = between(admitted, fromMs, refused.toldAtMs).filter((point) =>
    isSettled(one, point, refused),
  )
  const owing = owed.filter((point) => mayBeSettled(point, refused))
  const own = doubts.filter((doubt) => doubt === refused)
  return count(admitted) - settled.length + count(owing) + count(doubts) - own.length
}

/** A doubtful call may have begun an access, unless it lies within one; if it was admitted, two. */
const countAccesses: Count = ({ admitted, doubts, history, name }, refused, windowMs) => {
  const told = new Set<Timed>(inWindow(admitted, refused, windowMs))
  const unsure = new Set<Timed>(inWindow(doubts, refused, windowMs).filter((call) => call !== refused))
  const all = [...new Set([...told, ...unsure])].toSorted((a, b) => a.askedAtMs - b.askedAtMs)
  const begun = mostAccesses(all, togetherMs(history.limits[name]))
  return begun.length + begun.filter((call) => told.has(call) && unsure.has(call)).length
}

/** Counts the points of the period of a refusal as they were settled for certain; if two periods are possible, those of both. */
function countPeriod(one: Case, refused: Witness, spreadMs: number): number {
  const periods = new Set(
    [refused.askedAtMs - spreadMs, refused.toldAtMs + spreadMs].map((ms) => periodOf(one, ms)),
  )
  if (periods.has(undefined)) return Infinity
  const isInPeriod = (call: Timed): boolean =>
    call !== refused &&
    call.askedAtMs <= refused.toldAtMs &&
    [call.askedAtMs - spreadMs, Math.min(call.toldAtMs, refused.toldAtMs) + spreadMs].some((ms) => {
      const period = periodOf(one, ms)
      return period === undefined || periods.has(period)
    })
  const counted = one.admitted.filter((point) => isInPeriod(point) && !isSettled(one, point, refused))
  const owing = one.owed.filter((point) => isInPeriod(point) && mayBeSettled(point, refused))
  return counted.length + owing.length + one.doubts.filter(isInPeriod).length
}

/**
 * Finds refusals of a limit that had room. Without a fault within two windows, a refusal needs `limit` calls in one window. While a
 * gateway may be without Redis it counts up to two windows, and may have only its fraction of the limit.
 */
export function* refusedEarly(one: Case): Generator<Violation> {
  const { name, client, kind, troubles, calls } = one
  const isPeriodic = kind === 'calendar' || kind === 'success'
  let last: Witness | undefined
  for (const call of calls) {
    const { askedAtMs, toldAtMs } = call
    if (call.admitted || call.isReplay || call.refusedBy !== name) continue
    // Many calls come at once, and are refused at once.
    if (last?.askedAtMs === askedAtMs && last.toldAtMs === toldAtMs) continue
    last = call
    const rule = steadyRule(one, call)
    if (rule === undefined) continue
    const { limit, windowMs } = rule
    const isDuring = overlapping(troubles, askedAtMs, toldAtMs).length > 0
    const isAfter = overlapping(troubles, askedAtMs - 2 * windowMs, toldAtMs).length > 0
    const steps = clockSteps(one, askedAtMs - 2 * windowMs, toldAtMs)
    const backMs = steps.reduce((sum, { byMs }) => sum + Math.abs(byMs), 0)
    const gateways = gatewaysAt(one, askedAtMs)
    const { cost } = call
    const part = Math.min(limit, Math.max(cost, Math.floor(limit / gateways)))
    const needed = (isDuring && gateways > 1 ? part : limit) - cost + 1
    // Above 1000, calls count for a thousandth of the window longer.
    const sharedMs = limit > 1000 ? Math.ceil(windowMs / 1000) : 0
    const isTwice = isDuring || (isAfter && gateways > 1) || steps.length > 0
    const moreMs = (isTwice ? windowMs : isAfter ? SPREAD_MS : 0) + backMs + sharedMs
    const counted = isPeriodic
      ? countPeriod(one, call, isAfter ? SPREAD_MS : 0)
      : (kind === 'access' ? countAccesses : countCalls)(one, call, windowMs + moreMs)
    if (counted >= needed) continue
    const text = `a call of ${name} by ${client} was refused at ${toldAtMs} after ${counted}, limit ${limit}`
    yield { promise: 'early', text }
    return
  }
}
