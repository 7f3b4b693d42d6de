/**
 * One call: the decision fell somewhere between when it was sent and when it was answered, or had reached an upstream.
 * Milliseconds of one clock.
 */
export interface Observed {
  readonly sentAt: number
  readonly answeredAt: number
  readonly admitted: boolean
}

/** The most calls that were certainly admitted within one window, wherever it starts. */
export function mostInAWindow(calls: readonly Observed[], windowMs: number): number {
  const admitted = calls.filter((call) => call.admitted).toSorted((a, b) => a.sentAt - b.sentAt)
  let most = 0
  for (const [i, { sentAt }] of admitted.entries()) {
    // A window that starts no later than this call: those sent from then on and answered before its end are inside it.
    const inside = admitted.slice(i).filter((call) => call.answeredAt < sentAt + windowMs)
    most = Math.max(most, inside.length)
  }
  return most
}

/** The refused calls before which, in the window that they closed, fewer than `limit` calls can have been admitted. */
export function wronglyRefused(
  calls: readonly Observed[],
  limit: number,
  windowMs: number,
): readonly Observed[] {
  const admitted = calls.filter((call) => call.admitted)
  return calls.filter((refused) => {
    if (refused.admitted) return false
    const possible = admitted.filter(
      (call) => call.answeredAt > refused.sentAt - windowMs && call.sentAt < refused.answeredAt,
    )
    return possible.length < limit
  })
}

/** The admitted calls before which, in the window that they closed, `limit` calls had certainly been admitted. */
export function wronglyAdmitted(
  calls: readonly Observed[],
  limit: number,
  windowMs: number,
): readonly Observed[] {
  const admitted = calls.filter((call) => call.admitted)
  return admitted.filter((one) => {
    const certain = admitted.filter(
      (call) => call.sentAt > one.answeredAt - windowMs && call.answeredAt < one.sentAt,
    )
    return certain.length >= limit
  })
}
