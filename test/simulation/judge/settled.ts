import type { Action } from '../history.ts'
import { actionsBetween, between, type Case, overlapping, type Timed, type Witness } from './evidence.ts'
import { RECOVERY_MS } from './troubles.ts'

/** True if a settlement may be lost: with its gateway, also before it was made, or with the data of a Redis that had it. */
function mayBeLost({ history, troubles }: Case, { gateway, toldAtMs }: Witness, atMs: number): boolean {
  const sentMs = Math.max(atMs, ...overlapping(troubles, atMs, atMs).map(({ toMs }) => toMs)) + RECOVERY_MS
  return history.actions.some((action) => {
    const { kind } = action
    if (kind === 'replace')
      return action.gateway === gateway && action.atMs >= toldAtMs && action.atMs <= sentMs
    // Redis may have no call at the instant of a settlement.
    if (kind === 'clock')
      return action.byMs < 0 && action.atMs <= sentMs && action.atMs >= toldAtMs - LONGEST_MS
    // A call whose window becomes another kind is not found.
    return kind === 'failover' && action.atMs >= atMs && action.atMs - action.lagMs <= sentMs
  })
}

/** Time for which a clock that was set back may be behind the calls. */
const LONGEST_MS = 15_000

const ENDS_CONNECTIONS: ReadonlySet<Action['kind']> = new Set<Action['kind']>(['cut', 'restart', 'failover'])

/** True if a gateway may open a new connection between two instants: a while after one was ended. */
const mayConnect = (actions: readonly Action[], fromMs: number, toMs: number): boolean =>
  actions.some(
    ({ kind, atMs, ms }) => ENDS_CONNECTIONS.has(kind) && atMs <= toMs && atMs + ms + RECOVERY_MS >= fromMs,
  )

/** True if a call was decided in no time: not by Redis. */
const isAlone = ({ askedAtMs, toldAtMs }: Timed): boolean => askedAtMs === toldAtMs

/**
 * True if nothing passed between a gateway and Redis since it admitted a call without Redis, until it decided another one so, and it
 * sent nothing: over a new connection, it hands its calls over, and does not know whether Redis has them.
 */
const isInOneSilence = ({ history: { actions } }: Case, first: Witness, later: Witness): boolean =>
  isAlone(first) &&
  isAlone(later) &&
  first.gateway === later.gateway &&
  actions.some(
    (action) =>
      action.kind === 'hang' &&
      action.gateway === first.gateway &&
      action.atMs <= first.askedAtMs &&
      later.toldAtMs <= action.atMs + action.ms &&
      !mayConnect(actions, action.atMs, later.toldAtMs),
  )

/** True if the gateway of a call may not know that a point of another gateway was settled: in an outage, it knows what Redis said before. */
const mayBeUnknown = (
  { troubles }: Case,
  point: Witness,
  { gateway, askedAtMs, toldAtMs }: Witness,
): boolean => point.gateway !== gateway && overlapping(troubles, askedAtMs, toldAtMs).length > 0

/** True if Redis certainly decided a call: one that took time in a trouble may have had no answer. */
const isByRedis = ({ troubles }: Case, call: Timed): boolean =>
  !isAlone(call) && overlapping(troubles, call.askedAtMs, call.toldAtMs).length === 0

/**
 * True if the last answer that the gateway of a call without Redis had may be one that Redis gave before it settled a point: to a call,
 * or to the hand-over of the point itself.
 */
function mayBeOvertaken(one: Case, point: Witness, call: Witness, knownMs: number): boolean {
  if (isByRedis(one, call)) return false
  const { settledAtMs = Infinity } = point
  const isOwn = (other: Witness): boolean => other.gateway === call.gateway
  const isToldSince = between(one.calls, settledAtMs, call.askedAtMs).some(
    (other) =>
      isOwn(other) &&
      isByRedis(one, other) &&
      other.askedAtMs >= settledAtMs + knownMs &&
      other.toldAtMs <= call.askedAtMs,
  )
  if (isToldSince) return false
  const isHandedOver = !isByRedis(one, point)
  const asked = between(one.calls, settledAtMs, settledAtMs + knownMs)
  return isHandedOver || asked.some((other) => isOwn(other) && !isAlone(other))
}

/** True if a point was settled for certain before a call was asked: also the other gateways know it within a second. */
export function isSettled(one: Case, point: Witness, call: Witness): boolean {
  const { history, troubles } = one
  if (mayBeUnknown(one, point, call)) return false
  const { settledAtMs: atMs = Infinity } = point
  const { askedAtMs: beforeMs } = call
  if (atMs < beforeMs && isInOneSilence(one, point, call)) return !mayBeLost(one, point, atMs)
  const knownMs = history.gateways > 1 ? 1100 : 5
  if (atMs + knownMs > beforeMs) return false
  if (mayBeOvertaken(one, point, call, knownMs)) return false
  // A settlement that is kept goes to Redis after the trouble.
  if (overlapping(troubles, beforeMs, beforeMs).some(({ fromMs }) => fromMs <= atMs + knownMs)) return false
  const during = overlapping(troubles, atMs, atMs + knownMs)
  if (during.some(({ toMs }) => toMs + knownMs > beforeMs)) return false
  // A gateway that does not run sends it afterwards.
  const pauses = actionsBetween(history, ['suspend'], atMs, atMs + knownMs)
  if (pauses.some((pause) => pause.atMs + pause.ms + knownMs > beforeMs)) return false
  return !mayBeLost(one, point, atMs)
}

/** True if a point may have been settled when a call was decided. */
export const mayBeSettled = ({ settledAtMs = Infinity }: Witness, { toldAtMs }: Witness): boolean =>
  settledAtMs <= toldAtMs
