import { TIMEOUT_MS } from '../gateway.ts'
import { togetherMs } from '../changes.ts'
import { countedBy, promised } from './most.ts'
import {
  between,
  type Case,
  clockSteps,
  losesData,
  MICROSECOND_MS,
  overlapping,
  type Timed,
  type Violation,
  type Witness,
} from './evidence.ts'

/** A call that the fallback counted is taken to be made up to 10 ms later, or a round trip. */
export const SPREAD_MS = TIMEOUT_MS

/** Finds windows with more accesses than promised. A call belongs to an access if it may have begun within it. */
export function* excessOfAccesses(one: Case): Generator<Violation> {
  const { troubles, name, client, rules } = one
  const admitted = countedBy(one)
  const { windowMs: longestMs } = one.history.limits[name]
  const accessMs = togetherMs({ windowMs: longestMs })
  const limit = Math.max(...rules.map((rule) => rule.limit))
  const isTroubled = (fromMs: number, toMs: number): boolean => overlapping(troubles, fromMs, toMs).length > 0
  const begun: Witness[] = []
  for (const call of admitted) {
    const { toldAtMs: fromMs } = begun.at(-1) ?? { toldAtMs: -Infinity }
    const spreadMs = isTroubled(fromMs, call.toldAtMs) ? SPREAD_MS : MICROSECOND_MS
    // An access lasts longer if the clock is set back meanwhile.
    const backMs = clockSteps(one, fromMs, call.toldAtMs).reduce(
      (sum, { byMs }) => sum + Math.max(0, -byMs),
      0,
    )
    const lengthMs = accessMs * (backMs === 0 ? 1 : 2) + backMs
    if (call.askedAtMs > fromMs + lengthMs + spreadMs) begun.push(call)
  }
  for (const [i, { askedAtMs: fromMs }] of begun.entries()) {
    const steps = clockSteps(one, fromMs, fromMs + longestMs).filter(({ atMs }) => atMs >= fromMs)
    const windowMs = steps.reduce((ms, { byMs }) => ms - Math.max(0, byMs), longestMs)
    const found = begun.slice(i).filter(({ toldAtMs }) => toldAtMs < fromMs + windowMs - MICROSECOND_MS)
    // The first may belong to an access that began before, perhaps with a call whose answer was lost.
    const before = [one.admitted, one.doubts].some((calls) =>
      between<Timed>(calls, fromMs - accessMs - SPREAD_MS, fromMs).some(
        ({ askedAtMs }) => askedAtMs < fromMs,
      ),
    )
    if (found.length - Number(before) <= promised(one, limit, fromMs, fromMs + windowMs)) continue
    const text = `${found.length} accesses of ${name} by ${client} in ${windowMs} ms from ${fromMs.toFixed(3)}, limit ${limit}`
    yield { promise: 'limit', text }
    return
  }
}

/** Returns the calls, of many in the order of their asking, that begin accesses, if each begins one as soon as the last may be over: the most that may have begun. */
export function mostAccesses<T extends Timed>(calls: readonly T[], lengthMs: number): readonly T[] {
  const begun: T[] = []
  for (const call of calls)
    if (call.toldAtMs >= (begun.at(-1)?.askedAtMs ?? -Infinity) + lengthMs) begun.push(call)
  return begun
}

/** Returns the calls that begin an access for certain, if another call of the same instant did not: the first after a pause as long as one. */
function certainBeginnings({ admitted, doubts }: Case, lengthMs: number): readonly Timed[] {
  const certain: Timed[] = []
  let untilMs = -Infinity
  const all = [...new Set<Timed>([...admitted, ...doubts])].toSorted((a, b) => a.askedAtMs - b.askedAtMs)
  const told = new Set<Timed>(admitted)
  for (const call of all) {
    if (told.has(call) && call.askedAtMs > untilMs) certain.push(call)
    untilMs = Math.max(untilMs, call.toldAtMs + lengthMs + SPREAD_MS)
  }
  return certain
}

/**
 * Finds calls that were refused although an access of theirs was under way for certain. In a fault, several gateways and one that
 * has just started do not know of it, nor does a Redis that has lost its data.
 */
export function* refusedAccesses(one: Case): Generator<Violation> {
  const { calls, history, name, client, troubles } = one
  const [rule, ...others] = one.rules
  if (rule!.limit === 0 || others.length > 0) return
  const lengthMs = togetherMs(history.limits[name])
  const certain = certainBeginnings(one, lengthMs)
  const isShared =
    history.gateways > 1 || history.actions.some((action) => action.kind === 'replace' || losesData(action))
  const clockAtMs = history.actions.find(({ kind }) => kind === 'clock')?.atMs ?? Infinity
  for (const { askedAtMs, toldAtMs, admitted, isReplay, refusedBy } of calls) {
    if (admitted || isReplay || refusedBy !== name || toldAtMs >= clockAtMs) continue
    const fromMs = askedAtMs - 2 * lengthMs
    if (isShared && overlapping(troubles, fromMs, toldAtMs).length > 0) continue
    const begun = between(certain, toldAtMs - lengthMs, askedAtMs).find(
      (begin) => begin.toldAtMs < askedAtMs && begin.askedAtMs + lengthMs > toldAtMs + MICROSECOND_MS,
    )
    if (begun === undefined) continue
    const text = `a call of ${name} by ${client} was refused at ${toldAtMs}, in the access of ${begun.toldAtMs}`
    yield { promise: 'free', text }
    return
  }
}
