import type { Action } from '../history.ts'
import { suspendedMs } from '../play.ts'

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

const OF_GATEWAY = new Set<Action['kind']>(['slow', 'hang', 'cut', 'lose', 'suspend', 'replace'])

/** True if a fault reaches a gateway: one of its own, or one of Redis. */
export const reaches = (action: Action, gateway: number): boolean =>
  !OF_GATEWAY.has(action.kind) || ('gateway' in action && action.gateway === gateway)

/** True if a fault is one of gateways, or of the half of a cluster that is given. */
export const isInHalf = (action: Action, half: 0 | 1): boolean =>
  OF_GATEWAY.has(action.kind) || !('half' in action) || action.half === half

/**
 * Returns the spans in which a gateway may be without Redis: of faults, until all have recovered from them. A gateway that does not
 * run meanwhile recovers afterwards.
 */
export function troublesOf(actions: readonly Action[]): readonly Span[] {
  const troubles: { fromMs: number; toMs: number }[] = []
  const pauses = actions.filter(({ kind }) => kind === 'suspend').toSorted((a, b) => a.atMs - b.atMs)
  const spans = actions
    .flatMap((action) => spanOf(action) ?? [])
    .map((span) =>
      pauses.reduce(
        ({ fromMs, toMs }, { atMs, ms }) => ({
          fromMs,
          toMs: atMs <= toMs + RECOVERY_MS && atMs + ms >= fromMs ? Math.max(toMs, atMs + ms) : toMs,
        }),
        span,
      ),
    )
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
    if (action.kind === 'suspend') return { ...action, ms: suspendedMs(action) }
    const target = targetOf(action)
    if (target === '') return action
    const begins = actions
      .filter((other) => other !== action && targetOf(other) === target)
      .map(({ atMs }) => atMs)
      .filter((atMs) => atMs >= action.atMs && atMs <= action.atMs + action.ms)
    return begins.length === 0 ? action : { ...action, ms: Math.min(...begins) - action.atMs }
  })
}
