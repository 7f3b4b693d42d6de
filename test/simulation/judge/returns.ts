import { actionsBetween, type Case, overlapping, type Witness } from './evidence.ts'
import { RECOVERY_MS } from './troubles.ts'

/** True if a return may be lost: with its gateway, also before it was made, or with the data of a Redis that had it. */
function mayBeLost({ history, troubles }: Case, { gateway, toldAtMs }: Witness, atMs: number): boolean {
  const sentMs = Math.max(atMs, ...overlapping(troubles, atMs, atMs).map(({ toMs }) => toMs)) + RECOVERY_MS
  return history.actions.some((action) => {
    const { kind } = action
    if (kind === 'replace')
      return action.gateway === gateway && action.atMs >= toldAtMs && action.atMs <= sentMs
    // A return is not made to a period before that of its call.
    if (kind === 'clock') return action.byMs < 0 && action.atMs >= toldAtMs && action.atMs <= sentMs
    return kind === 'failover' && action.atMs >= atMs && action.atMs - action.lagMs <= sentMs
  })
}

/** True if a call was given back for certain before another was asked: also the other gateways know it within a second. */
export function isGivenBack(one: Case, call: Witness, beforeMs: number): boolean {
  const { history, troubles, kind } = one
  const { givenBackAtMs: atMs = Infinity } = call
  const knownMs = history.gateways > 1 ? 1100 : 5
  if (kind !== 'success' || atMs + knownMs > beforeMs) return false
  // A return that is kept goes to Redis after the trouble.
  if (overlapping(troubles, beforeMs, beforeMs).some(({ fromMs }) => fromMs <= atMs + knownMs)) return false
  const during = overlapping(troubles, atMs, atMs + knownMs)
  if (during.some(({ toMs }) => toMs + knownMs > beforeMs)) return false
  // A gateway that does not run sends it afterwards.
  const pauses = actionsBetween(history, ['suspend'], atMs, atMs + knownMs)
  if (pauses.some((pause) => pause.atMs + pause.ms + knownMs > beforeMs)) return false
  return !mayBeLost(one, call, atMs)
}
