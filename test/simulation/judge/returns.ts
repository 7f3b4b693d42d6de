import type { Action } from '../history.ts'
import { type Case, type Witness, overlapping } from './evidence.ts'
import { RECOVERY_MS, spanOf } from './troubles.ts'

/** A gateway that gets no answer sends returns for as long, then keeps them until Redis answers. */
const SENT_MS = 600
/** No connection is given up, and so no answer lost, within this time of silence. */
const SILENT_MS = 250

/** True if a connection may be lost in a fault, and with it the answer to a return. */
const losesAnswers = ({ kind, ms }: Action): boolean =>
  ['cut', 'restart', 'failover', 'replace'].includes(kind) ||
  (['hang', 'stall', 'slow'].includes(kind) && ms > SILENT_MS)

/** True if the answer to the return of a call may be lost: when it was sent at once, or at the end of the fault in which it was kept. */
function isUnsure(actions: readonly Action[], atMs: number): boolean {
  const faults = actions.flatMap((action) => {
    const span = spanOf(action)
    return span === undefined ? [] : [{ ...span, action }]
  })
  const kept = faults.find(({ fromMs, toMs }) => fromMs - SILENT_MS <= atMs && atMs <= toMs + RECOVERY_MS)
  return faults.some(({ fromMs, toMs, action }) => {
    if (action.kind === 'failover' && fromMs - action.lagMs <= atMs && atMs <= fromMs) return true
    if (!losesAnswers(action)) return false
    const sentUntilMs = action.kind === 'slow' ? toMs + SENT_MS : fromMs + SENT_MS
    if (fromMs - SILENT_MS <= atMs && atMs <= sentUntilMs) return true
    const isOther = kept !== undefined && kept.action !== action
    return isOther && fromMs <= kept.toMs + RECOVERY_MS && toMs >= atMs
  })
}

/** True if a call was given back for certain before another was asked: also the other gateways know it within a second. */
export function isGivenBack({ history, troubles, kind }: Case, call: Witness, beforeMs: number): boolean {
  const { givenBackAtMs: atMs = Infinity } = call
  const knownMs = history.gateways > 1 ? 1100 : 5
  if (kind !== 'success' || atMs + knownMs > beforeMs) return false
  // A return that is kept goes to Redis after the trouble.
  if (overlapping(troubles, beforeMs, beforeMs).some(({ fromMs }) => fromMs <= atMs + knownMs)) return false
  const during = overlapping(troubles, atMs, atMs + knownMs)
  if (during.some(({ toMs }) => toMs + knownMs > beforeMs)) return false
  return !isUnsure(history.actions, atMs)
}
