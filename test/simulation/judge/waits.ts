import { SPREAD_MS } from './accesses.ts'
import type { LimitName } from '../history.ts'
import {
  actionsBetween,
  between,
  type Case,
  clockSteps,
  gatewaysAt,
  GRACE_MS,
  overlapping,
  rulesBetween,
  type Violation,
  type Witness,
} from './evidence.ts'
import { isSettled, mayBeSettled } from './settled.ts'

/** A gateway caches a refusal for at most as long. */
const CACHED_MS = 1000

/** Returns the instant from which a call that another gateway admitted may lengthen the wait of a refusal: of costs, shares and settled calls, also one before, if the refusal was cached. */
function unknownFrom({ history, calls }: Case, { askedAtMs }: Witness): number {
  const hasShares = Object.values(history.limits).some(({ counts }) => counts !== undefined)
  const isLonger = hasShares || history.settles !== undefined || calls.some(({ cost }) => cost > 1)
  return askedAtMs - (isLonger && history.gateways > 1 ? CACHED_MS : 0)
}

/**
 * Returns how often in a row a caller waited as told, and was refused again although no other call was admitted and the clock of Redis
 * was not set meanwhile.
 */
function refusalsInRow(one: Case, refused: Witness): number {
  const { waitedFor, toldAtMs } = refused
  if (waitedFor === undefined || refused.refusedBy !== one.name) return 0
  const isTaken = between(one.admitted, unknownFrom(one, waitedFor), toldAtMs).length > 0
  const isSet = actionsBetween(one.history, ['clock'], waitedFor.askedAtMs, toldAtMs).length > 0
  return isTaken || isSet ? 0 : 1 + refusalsInRow(one, waitedFor)
}

const isBetween = (atMs: number | undefined, fromMs: number, toMs: number): boolean =>
  atMs !== undefined && atMs >= fromMs && atMs <= toMs

/** Maximum re-checks of a full key in a second, by which a gateway finds out if another limit has a longer wait. */
const MAX_RECHECKS = 16

/**
 * True if the wait of a refusal by one limit may be shorter than that of another: an access of that one may be over by then, another
 * gateway may have filled it, or the gateway did not ask: it may have refused often within a second, or its own calls in progress
 * fill the limit. Or the gateway has settled a call that Redis still counts as its reserve.
 */
function mayBeShorter(one: Case, waitedFor: Witness, again: Witness): boolean {
  const { kind, calls, history, name, admitted, rules } = one
  const { askedAtMs, toldAtMs } = waitedFor
  const windowMs = Math.max(...rules.map((rule) => rule.windowMs))
  const isUnsure = between(admitted, toldAtMs - windowMs, toldAtMs).some(
    (point) => point.settledAtMs !== undefined && !isSettled(one, point, again),
  )
  if (isUnsure) return true
  if (kind === 'access' || history.gateways > 1) return true
  if (history.limits[waitedFor.refusedBy as LimitName].kind === 'atOnce') return true
  const refused = between(calls, askedAtMs - GRACE_MS, toldAtMs).filter(({ admitted }) => !admitted)
  return refused.filter(({ refusedBy }) => refusedBy !== name).length > MAX_RECHECKS
}

/** True if a point that was owed at a refusal, without that Redis knew it for certain, may count at the next: after an outage. */
const isSettledLater = (one: Case, point: Witness, before: Witness, after: Witness): boolean =>
  mayBeSettled(point, after) && !isSettled(one, point, before)

/**
 * Finds callers that waited `Retry-After`, and were refused again although no other call was admitted since the refusal. Each
 * doubtful call excuses one refusal. Of several gateways, after a fault, none knows what the others admitted within two windows.
 */
export function* brokenWaits(one: Case): Generator<Violation> {
  const { calls, admitted, doubts, history, kind, name, client, troubles } = one
  for (const call of calls) {
    const { waitedFor, toldAtMs } = call
    if (call.admitted || call.isReplay || call.refusedBy !== name || waitedFor === undefined) continue
    // With a limit of 0, or below the cost, the wait is always a window.
    if (rulesBetween(one, waitedFor.askedAtMs, toldAtMs).some(({ limit }) => limit < call.cost)) continue
    if (waitedFor.refusedBy !== name && mayBeShorter(one, waitedFor, call)) continue
    const windowMs = Math.max(...one.rules.map((rule) => rule.windowMs))
    const isAfter = overlapping(troubles, waitedFor.askedAtMs - 2 * windowMs, toldAtMs).length > 0
    const isShared = isAfter && gatewaysAt(one, toldAtMs) > 1
    const fromMs = isShared ? waitedFor.askedAtMs - 2 * windowMs : unknownFrom(one, waitedFor)
    if (between(admitted, fromMs, toldAtMs).length > 0) continue
    // What a call owes, the next calls wait for; another gateway may know it a second later.
    const owedFromMs = fromMs - (history.gateways > 1 ? CACHED_MS : 0)
    const isOwedSince = (point: Witness): boolean =>
      isBetween(point.settledAtMs, owedFromMs, toldAtMs) || isSettledLater(one, point, waitedFor, call)
    if (one.owed.some(isOwedSince)) continue
    const isChanged =
      actionsBetween(history, ['replace', 'change'], fromMs - GRACE_MS, toldAtMs + GRACE_MS).length > 0 ||
      one.rules.some((rule) => rule.fromMs > fromMs - GRACE_MS && rule.fromMs <= toldAtMs) ||
      actionsBetween(history, ['clock'], fromMs - GRACE_MS, toldAtMs + GRACE_MS).length > 0 ||
      (isAfter && clockSteps(one, fromMs - 2 * windowMs, toldAtMs).length > 0)
    if (isChanged) continue
    const unknown = between(doubts, waitedFor.askedAtMs - windowMs, toldAtMs).length
    // Periods that the clock, set back, has entered again: the end of one is told, but the calls of those after it count until they end.
    const isPeriodic = kind === 'calendar' || kind === 'success'
    // Without Redis, the end of a period is known as well as its clock.
    if (isPeriodic && isAfter && call.retryAfterMs <= SPREAD_MS) continue
    const entered = clockSteps(one, waitedFor.askedAtMs, waitedFor.toldAtMs)
      .map(({ byMs }) => Math.ceil(Math.max(0, -byMs) / windowMs))
      .reduce((sum, periods) => sum + periods, 0)
    if (refusalsInRow(one, call) <= unknown + (isPeriodic ? entered : 0)) continue
    const text = `${client} waited ${waitedFor.retryAfterMs.toFixed(3)} ms after a refusal at ${waitedFor.toldAtMs.toFixed(3)}; refused at ${toldAtMs.toFixed(3)}, ${call.retryAfterMs.toFixed(3)} ms more of ${name}`
    yield { promise: 'wait', text }
    return
  }
}

/** Finds waits that are longer than a window; than two, if the clock of Redis was set back. */
export function* longWaits(one: Case): Generator<Violation> {
  const { calls, name, client, history } = one
  for (const { askedAtMs, toldAtMs, refusedBy, retryAfterMs } of calls) {
    if (refusedBy !== name) continue
    const windows = one.rules.filter(({ fromMs }) => fromMs <= toldAtMs).map(({ windowMs }) => windowMs)
    const windowMs = Math.max(...windows)
    const isBack = clockSteps(one, askedAtMs - windowMs, toldAtMs).length > 0
    // Since a start, or since the clock was set, there may have been slow answers only.
    const isUnsure = actionsBetween(history, ['clock', 'replace'], 0, toldAtMs).length > 0
    const sharedMs = windowMs / 1000
    if (retryAfterMs <= windowMs * (isBack || isUnsure ? 2 : 1) + SPREAD_MS + sharedMs) continue
    const text = `a call of ${name} by ${client} was refused at ${toldAtMs}, to wait ${retryAfterMs} ms, longer than a window`
    yield { promise: 'wait', text }
    return
  }
}
