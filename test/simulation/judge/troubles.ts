import type { Action } from '../history.ts'

export interface Span {
  readonly fromMs: number
  readonly toMs: number
}

/** A gateway connects again within a second, is asked to within a quarter, and hands its calls over in as long. */
export const RECOVERY_MS = 2000

/**
 * Returns the span in which a fault hinders messages; undefined if it hinders none. A gateway that is suspended loses no message,
 * and a script that Redis has lost is sent again.
 */
export function spanOf(action: Action): Span | undefined {
  const { kind, atMs, ms } = action
  if (kind === 'slow') return { fromMs: atMs, toMs: atMs + ms + 2 * action.delayMs }
  const hinders = ['hang', 'cut', 'stall', 'full', 'readonly', 'restart', 'failover', 'replace'].includes(
    kind,
  )
  return hinders ? { fromMs: atMs, toMs: atMs + ms } : undefined
}

/** Returns the spans in which a gateway may be without Redis: of faults, until all have recovered from them. */
export function troublesOf(actions: readonly Action[]): readonly Span[] {
  const troubles: { fromMs: number; toMs: number }[] = []
  const spans = actions.flatMap((action) => spanOf(action) ?? [])
  for (const { fromMs, toMs } of spans.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const last = troubles.at(-1)
    if (last !== undefined && fromMs <= last.toMs) last.toMs = Math.max(last.toMs, toMs + RECOVERY_MS)
    else troubles.push({ fromMs, toMs: toMs + RECOVERY_MS })
  }
  return troubles
}

/** Returns the actions as they were played: a silence of the same gateway or server that begins within another replaces it. */
export function asPlayed(actions: readonly Action[], isCluster: boolean): readonly Action[] {
  const targetOf = (action: Action): string =>
    action.kind === 'hang'
      ? `gateway ${action.gateway}`
      : action.kind === 'stall'
        ? `half ${isCluster ? action.half : 0}`
        : ''
  return actions.map((action) => {
    const target = targetOf(action)
    if (target === '') return action
    const begins = actions
      .filter((other) => other !== action && targetOf(other) === target)
      .map(({ atMs }) => atMs)
      .filter((atMs) => atMs >= action.atMs && atMs <= action.atMs + action.ms)
    return begins.length === 0 ? action : { ...action, ms: Math.min(...begins) - action.atMs }
  })
}
