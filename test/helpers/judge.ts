/**
 * One call. It was decided between the instants at which it was sent and at which it was answered, or reached an upstream.
 * Milliseconds of one clock.
 */
export interface Observed {
  readonly sentAt: number
  readonly answeredAt: number
  readonly admitted: boolean
}

/** Returns the maximum number of calls that were certainly admitted within any one window. */
export function mostInAWindow(calls: readonly Observed[], windowMs: number): number {
  const admitted = calls.filter((call) => call.admitted).toSorted((a, b) => a.sentAt - b.sentAt)
  let most = 0
  for (const [i, { sentAt }] of admitted.entries()) {
    // A window that starts when this call is sent: calls sent later and answered before its end are inside it.
    const inside = admitted.slice(i).filter((call) => call.answeredAt < sentAt + windowMs)
    most = Math.max(most, inside.length)
  }
  return most
}

/** Returns the refused calls for which fewer than `limit` calls can have been admitted in the window before them. */
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

/** Returns the admitted calls for which `limit` calls had certainly been admitted in the window before them. */
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
