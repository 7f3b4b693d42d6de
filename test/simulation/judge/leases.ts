import { halfOf } from '../halves.ts'
import type { Action } from '../history.ts'
import { KEPT_MS } from '../in-progress.ts'
import { type Case, losesData, overlapping, type Witness } from './evidence.ts'
import { isInHalf, reaches, RECOVERY_MS, type Span, spanOf } from './troubles.ts'

/** Time in which the end of a call reaches Redis. */
const ENDED_MS = 5
/** Time in which a renewal that is due reaches Redis: a turn of the background, and a question. */
export const TURN_MS = 600
/** Maximum length of a fault, with the time to recover from it. */
const LONGEST_SILENCE_MS = 10_000

/** All that is known of a limit of calls at once of one client. */
export interface AtOnce {
  readonly one: Case
  /** Time after which the lease of a call ends by itself. */
  readonly leaseMs: number
  /** For each gateway, the spans in which it may be without Redis, or did not run. */
  readonly silences: readonly (readonly Silence[])[]
  /** The spans from a loss of data, or a clock set forward, until all calls in progress are known to Redis again. */
  readonly losses: readonly Loss[]
}

interface Silence extends Span {
  /** True if the gateway did not run. */
  readonly isPause: boolean
}

interface Loss extends Span {
  /** Redis does not know what came after this instant. */
  readonly sinceMs: number
}

/** Returns what is known of a limit of calls at once. */
export function atOnceOf(one: Case): AtOnce {
  const { windowMs } = one.history.limits[one.name]
  const silences = Array.from({ length: one.history.gateways }, (_, gateway) => silencesOf(one, gateway))
  return { one, leaseMs: windowMs, silences, losses: lossesOf(one, windowMs) }
}

const isOf = ({ history, client }: Case, action: Action): boolean =>
  action.kind !== 'caller' && (!history.isCluster || isInHalf(action, halfOf(`{${client}}`)))

function silencesOf(one: Case, gateway: number): readonly Silence[] {
  const found = one.history.actions.flatMap((action): Silence[] => {
    if (!isOf(one, action) || !reaches(action, gateway)) return []
    const { kind, atMs, ms } = action
    if (kind === 'suspend') return [{ fromMs: atMs, toMs: atMs + ms + TURN_MS, isPause: true }]
    const span = spanOf(action)
    return span === undefined ? [] : [{ fromMs: span.fromMs, toMs: span.toMs + RECOVERY_MS, isPause: false }]
  })
  const merged: Silence[] = []
  for (const span of found.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const last = merged.at(-1)
    if (last === undefined || span.fromMs > last.toMs) merged.push(span)
    else {
      // A gateway that does not run in a fault recovers afterwards.
      const laterMs = last.isPause === span.isPause ? 0 : RECOVERY_MS
      const toMs = Math.max(last.toMs, span.toMs) + laterMs
      merged[merged.length - 1] = { fromMs: last.fromMs, toMs, isPause: last.isPause && span.isPause }
    }
  }
  return merged
}

function lossesOf(one: Case, leaseMs: number): readonly Loss[] {
  const { actions } = one.history
  /** True if a clock is set so little, and nothing else happens near, that all leases last beyond. */
  const isShort = ({ number, atMs, byMs }: Action & { readonly kind: 'clock' }): boolean =>
    byMs < leaseMs / 2 - TURN_MS &&
    actions.every(
      (other) =>
        other.kind === 'caller' ||
        other.number === number ||
        other.atMs > atMs + leaseMs ||
        other.atMs + other.ms + RECOVERY_MS < atMs - leaseMs,
    )
  return actions.flatMap((action): Loss[] => {
    const { kind, atMs, ms } = action
    if (!isOf(one, action)) return []
    const isForward = kind === 'clock' && action.byMs > 0 && !isShort(action)
    if (!isForward && !losesData(action)) return []
    const sinceMs = kind === 'failover' ? atMs - action.lagMs : -Infinity
    return [{ fromMs: atMs, toMs: atMs + ms + leaseMs / 2 + TURN_MS + RECOVERY_MS, sinceMs }]
  })
}

/** Returns the instant at which the place of a call is free. */
export function placeEndMs({ history, name }: Case, { leftAtMs = Infinity, endedAtMs = Infinity }: Witness) {
  return Math.min(endedAtMs, leftAtMs + Math.min(KEPT_MS, history.limits[name].windowMs))
}

/** True if Redis has a call of a gateway for certain between two instants. */
export function isStored(
  { leaseMs, silences, losses }: AtOnce,
  call: Witness,
  fromMs: number,
  toMs: number,
): boolean {
  const { gateway, askedAtMs, toldAtMs } = call
  if (overlapping(losses, fromMs, toMs).some(({ sinceMs }) => sinceMs <= toldAtMs)) return false
  // A loss in a silence: the calls are stored again when it is over.
  return overlapping(silences[gateway]!, askedAtMs, toMs).every((silence) => {
    if (fromMs > silence.toMs) return true
    const isBefore = toldAtMs < silence.fromMs || silence.isPause
    const isLost = overlapping(losses, silence.fromMs, toMs).length > 0
    return isBefore && !isLost && toMs < silence.fromMs + leaseMs / 2 - TURN_MS
  })
}

/** True if a gateway ended before it can have told Redis what it learned at an instant. */
const isKilledAfter = ({ history }: Case, gateway: number, atMs: number): boolean =>
  history.actions.some(
    (action) =>
      action.kind === 'replace' &&
      action.gateway === gateway &&
      action.atMs >= atMs - TURN_MS &&
      action.atMs <= atMs + LONGEST_SILENCE_MS,
  )

/**
 * Returns the instant until which a call may hold its place, after it has ended at its gateway; `undefined` is a gateway that ended
 * with it.
 */
export function freeAt(
  { one, leaseMs, silences, losses }: AtOnce,
  gateway: number | undefined,
  endedAtMs: number,
  longestMs: number,
): number {
  const [silence] =
    gateway === undefined ? [] : overlapping(silences[gateway]!, endedAtMs, endedAtMs + ENDED_MS)
  // A replica that is behind has leases whose end Redis learned within the lag.
  const learnedByMs = silence?.toMs ?? endedAtMs
  const isBack = losses.some(
    ({ fromMs, sinceMs }) => sinceMs > -Infinity && learnedByMs >= sinceMs && endedAtMs <= fromMs + TURN_MS,
  )
  if (isBack) return Infinity
  if (gateway === undefined) return endedAtMs + longestMs
  if (silence === undefined) return endedAtMs + ENDED_MS
  if (isKilledAfter(one, gateway, endedAtMs)) return endedAtMs + longestMs
  // After the length of a lease, a gateway takes it as ended, also if the clock was set back.
  return longestMs > leaseMs + TURN_MS ? endedAtMs + longestMs : Math.min(silence.toMs, endedAtMs + longestMs)
}
