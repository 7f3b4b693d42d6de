import { halfOf } from '../halves.ts'
import {
  actionsBetween,
  between,
  type Case,
  clockSteps,
  losesData,
  MICROSECOND_MS,
  overlapping,
  rulesBetween,
  steadyRule,
  type Violation,
  type Witness,
} from './evidence.ts'
import { periodOf } from './periods.ts'
import { isSettled, mayBeSettled } from './settled.ts'

/** Each gateway registers within two seconds of its start. */
const KNOWN_MS = 2000

/** Returns the calls that docs/outages.md promises at most in a window. */
export function promised(one: Case, limit: number, fromMs: number, toMs: number): number {
  const { history, name, troubles } = one
  const { gateways } = history
  const losses = actionsBetween(history, ['restart', 'failover'], fromMs, toMs).filter(losesData).length
  const isDenied = history.limits[name].onOutage === 'deny'
  const starts = isDenied ? 0 : alone(one, fromMs, toMs)
  const isShared = gateways > 1 && !isDenied && overlapping(troubles, fromMs, toMs).length > 0
  // Calls to which only another limit of the counter applies count, too.
  const highest = Math.max(...new Set([...one.calls, ...one.admitted].map(({ cost }) => cost)))
  const byFallbacks = isShared ? Math.max(limit, gateways * Math.min(limit, highest)) : 0
  const byRedis = isShared && isOut(one, fromMs, toMs) ? 0 : limit
  return byRedis + limit * (losses + starts) + byFallbacks
}

/** Returns the gateways that began between two instants, or before in a trouble that lasts: they know of no other gateway. */
function alone({ history, troubles }: Case, fromMs: number, toMs: number): number {
  return history.actions.filter(({ kind, atMs, ms }) => {
    if (kind !== 'replace' || atMs > toMs) return false
    const [first] = overlapping(troubles, atMs + ms, atMs + ms + KNOWN_MS)
    return atMs + ms >= fromMs || (first !== undefined && first.toMs >= fromMs)
  }).length
}

/** True if Redis answered no gateway between two instants: all calls were admitted by fallbacks. */
function isOut({ history, client }: Case, fromMs: number, toMs: number): boolean {
  const silences = history.actions.filter(
    (action) =>
      ['stall', 'restart', 'failover'].includes(action.kind) &&
      (!history.isCluster || ('half' in action && action.half === halfOf(`{${client}}`))),
  )
  // A server that is down is not taken down again.
  const isDown = (atMs: number): boolean =>
    silences.some((other) => other.kind !== 'stall' && other.atMs < atMs && atMs < other.atMs + other.ms)
  // A replica takes over from a server that stalls.
  const isReplaced = (atMs: number): boolean =>
    silences.some(
      (other) => other.kind === 'failover' && other.atMs + other.ms >= atMs && other.atMs + other.ms <= toMs,
    )
  return silences.some(
    ({ kind, atMs, ms }) =>
      atMs <= fromMs && atMs + ms >= toMs && !(kind === 'stall' ? isReplaced(atMs) : isDown(atMs)),
  )
}

/** Returns the admitted calls that a limit counts. */
export const countedBy = (one: Case): readonly Witness[] => whereCounted(one, one.admitted)

/** Returns the points that a limit counts: under `allow`, those of calls in an outage are not counted. */
const whereCounted = ({ history, name, troubles }: Case, points: readonly Witness[]): readonly Witness[] =>
  history.limits[name].onOutage === 'allow'
    ? points.filter(({ askedAtMs, toldAtMs }) => overlapping(troubles, askedAtMs, toldAtMs).length === 0)
    : points

/** Finds windows with more admitted calls than promised. A call counts only if it is in the window for certain. */
export function* excess(one: Case): Generator<Violation> {
  const admitted = countedBy(one)
  const longest = Math.max(...one.rules.map(({ windowMs }) => windowMs))
  let worst: Violation | undefined
  let most = 0
  for (const [i, { askedAtMs: fromMs }] of admitted.entries()) {
    const inForce = rulesBetween(one, fromMs, fromMs + longest)
    const clocks = clockSteps(one, fromMs, fromMs + longest).filter(({ atMs }) => atMs >= fromMs)
    const jumpMs = clocks.reduce((sum, { byMs }) => sum + Math.max(0, byMs), 0)
    const windowMs = Math.min(...inForce.map((rule) => rule.windowMs)) - jumpMs
    const limit = Math.max(...inForce.map((rule) => rule.limit))
    const untilMs = fromMs + windowMs - MICROSECOND_MS
    // More than the limit must have been asked in the window.
    if ((admitted[i + limit]?.askedAtMs ?? Infinity) >= untilMs) continue
    let found = 0
    for (let at = i; at < admitted.length && admitted[at]!.askedAtMs < untilMs; at++)
      if (admitted[at]!.toldAtMs < untilMs) found++
    const over = found - promised(one, limit, fromMs, fromMs + windowMs)
    if (over <= most) continue
    most = over
    const text = `${found} calls of ${one.name} by ${one.client} in ${windowMs} ms from ${fromMs.toFixed(3)}, limit ${limit}`
    worst = { promise: 'limit', text }
  }
  if (worst !== undefined) yield worst
}

/**
 * True if Redis lost its data after a point was settled, and before a call, or in an outage the gateway of the call was replaced by one
 * that knows nothing of Redis: what is owed then is more than what a loss admits again.
 */
function isLost({ history, troubles }: Case, { settledAtMs = 0 }: Witness, call: Witness): boolean {
  const { gateway, askedAtMs, toldAtMs } = call
  if (actionsBetween(history, ['restart', 'failover'], settledAtMs, toldAtMs).some(losesData)) return true
  if (overlapping(troubles, askedAtMs, toldAtMs).length === 0) return false
  return actionsBetween(history, ['replace'], settledAtMs, toldAtMs).some(
    (action) => action.kind === 'replace' && action.gateway === gateway,
  )
}

/**
 * Finds calls that were admitted although the window before them was full: with the points of calls that were not settled then for
 * certain, and those of calls that had used more than they reserved, for certain.
 */
export function* excessOfSettled(one: Case): Generator<Violation> {
  const admitted = countedBy(one)
  const allOwed = whereCounted(one, one.owed)
  const longest = Math.max(...one.rules.map(({ windowMs }) => windowMs))
  for (const call of new Set(admitted)) {
    const { toldAtMs: atMs } = call
    const inForce = rulesBetween(one, atMs - longest, atMs)
    const clocks = clockSteps(one, atMs - longest, atMs).filter((step) => step.atMs >= atMs - longest)
    const jumpMs = clocks.reduce((sum, { byMs }) => sum + Math.max(0, byMs), 0)
    const fromMs = atMs - Math.min(...inForce.map((rule) => rule.windowMs)) + jumpMs + MICROSECOND_MS
    const limit = Math.max(...inForce.map((rule) => rule.limit))
    const isInWindow = (point: Witness): boolean => point.askedAtMs > fromMs && point.toldAtMs <= atMs
    const counted = between(admitted, fromMs, atMs).filter(
      (point) => isInWindow(point) && !mayBeSettled(point, call),
    )
    const owed = between(allOwed, fromMs, atMs).filter(
      (point) => isInWindow(point) && isSettled(one, point, call) && !isLost(one, point, call),
    )
    // What is owed may be more than the limit: the call was refused if it counted.
    const found = counted.length + owed.length
    if (found <= promised(one, limit, fromMs, atMs)) continue
    const text = `${found} points of ${one.name} by ${one.client} at ${atMs.toFixed(3)}, ${owed.length} of them owed, limit ${limit}`
    yield { promise: 'limit', text }
    return
  }
}

/** Finds, at a single gateway, calls that were admitted although the last window was full under the rule in force, also after it was changed. */
export function* excessAfterChange(one: Case): Generator<Violation> {
  const { history, name, client } = one
  if (one.rules.length === 1 || history.gateways > 1 || history.actions.some(losesData)) return
  const admitted = countedBy(one)
  for (const { askedAtMs, toldAtMs, cost } of admitted) {
    const longest = 2 * Math.max(...one.rules.map(({ windowMs }) => windowMs))
    const [rule, ...others] = rulesBetween(one, askedAtMs, toldAtMs)
    const windows = rulesBetween(one, askedAtMs - longest, toldAtMs)
    const isSteady = others.length === 0 && windows.every(({ windowMs }) => windowMs === rule!.windowMs)
    const isUnsure = actionsBetween(history, ['replace', 'clock'], askedAtMs - longest, toldAtMs).length > 0
    if (!isSteady || isUnsure) continue
    const { limit, windowMs } = rule!
    const before = between(admitted, toldAtMs - windowMs, askedAtMs).filter(
      (other) => other.toldAtMs < askedAtMs && other.askedAtMs > toldAtMs - windowMs,
    )
    if (before.length + cost <= limit) continue
    const text = `a call of ${name} by ${client} was admitted at ${toldAtMs} after ${before.length}, limit ${limit}`
    yield { promise: 'limit', text }
    return
  }
}

/**
 * Finds calls that a share admitted although its counter had no room for them below the share's own number. In a fault of several
 * gateways, only the limit that it counts bounds what all admit.
 */
export function* excessOfShares(one: Case): Generator<Violation> {
  const { history, name, client, kind, calls, troubles } = one
  for (const call of calls) {
    const { askedAtMs, toldAtMs, cost } = call
    const rule = steadyRule(one, call)
    if (!call.admitted || rule === undefined) continue
    const { limit, windowMs } = rule
    if (history.gateways > 1 && overlapping(troubles, askedAtMs - 2 * windowMs, toldAtMs).length > 0) continue
    const earlier = kind === undefined ? between(one.admitted, toldAtMs - windowMs, askedAtMs) : one.admitted
    const period = kind && periodOf(one, askedAtMs)
    const isInWindow = (other: Witness): boolean =>
      kind === undefined
        ? other.askedAtMs > toldAtMs - windowMs
        : period !== undefined &&
          [toldAtMs, other.askedAtMs, other.toldAtMs].every((ms) => periodOf(one, ms) === period)
    const before = earlier.filter(
      (other) => other.toldAtMs < askedAtMs && isInWindow(other) && !mayBeSettled(other, call),
    )
    if (before.length + cost <= limit) continue
    const text = `a call of ${name} by ${client} was admitted at ${toldAtMs} after ${before.length} of its counter, limit ${limit}`
    yield { promise: 'limit', text }
    return
  }
}

/** Finds calendar periods in which more calls were counted or under way at a time than promised. A call counts if it is in the period for certain. */
export function* excessOfPeriods(one: Case): Generator<Violation> {
  const { name, client, rules } = one
  const periods = new Map<string, Witness[]>()
  for (const call of countedBy(one)) {
    const period = periodOf(one, call.askedAtMs)
    if (period === undefined || period !== periodOf(one, call.toldAtMs)) continue
    periods.set(period, [...(periods.get(period) ?? []), call])
  }
  const limit = Math.max(...rules.map((rule) => rule.limit))
  for (const [period, admitted] of periods) {
    if (admitted.length <= limit) continue
    for (const call of admitted) {
      const { toldAtMs: atMs } = call
      const counted = admitted.filter((point) => point.toldAtMs <= atMs && !mayBeSettled(point, call))
      const fromMs = admitted[0]!.askedAtMs
      // A clock that is set back enters the period again, with another limit of calls.
      const steps = clockSteps(one, fromMs, atMs).filter((step) => step.byMs < 0 && step.atMs >= fromMs)
      if (counted.length <= promised(one, limit, fromMs, atMs) + limit * steps.length) continue
      const text = `${counted.length} calls of ${name} by ${client} in the period ${period} at ${atMs.toFixed(3)}, limit ${limit}`
      yield { promise: 'limit', text }
      return
    }
  }
}
