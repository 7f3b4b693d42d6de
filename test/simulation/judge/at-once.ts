import {
  type Case,
  clockSteps,
  gatewaysAt,
  GRACE_MS,
  overlapping,
  rulesBetween,
  type Violation,
  type Witness,
} from './evidence.ts'
import { type AtOnce, atOnceOf, freeAt, isStored, placeEndMs, TURN_MS } from './leases.ts'

/** The wait of every refusal. */
const WAIT_MS = 1000

/** Finds what breaks the promises of a limit of calls at once. */
export function* brokenAtOnce(one: Case): Generator<Violation> {
  const all = atOnceOf(one)
  const inProgress = one.calls.filter(({ admitted }) => admitted)
  yield* excess(all, inProgress)
  yield* excessInSum(all, inProgress)
  yield* refusedWithRoom(all, inProgress)
  const wrong = one.calls.find((call) => call.refusedBy === one.name && call.retryAfterMs !== WAIT_MS)
  if (wrong !== undefined)
    yield { promise: 'wait', text: `a call of ${one.name} was to wait ${wrong.retryAfterMs} ms` }
}

/** Returns the greatest limit in force between two instants. */
const mostBetween = (one: Case, fromMs: number, toMs: number): number =>
  Math.max(...rulesBetween(one, fromMs, toMs).map(({ limit }) => limit))

/** True if a call has a place; a clock that is set forward ends that of a call whose caller left. */
function isInProgress(one: Case, call: Witness, fromMs: number, toMs: number): boolean {
  const { toldAtMs, leftAtMs } = call
  if (toldAtMs > fromMs || placeEndMs(one, call) <= toMs) return false
  return leftAtMs === undefined || clockSteps(one, leftAtMs, toMs).every(({ byMs }) => byMs <= 0)
}

/** Returns the part of a limit that each gateway admits without Redis. */
const partOf = (limit: number, gateways: number): number =>
  Math.min(limit, Math.max(1, Math.floor(limit / gateways)))

/** Returns the gateways that start between two instants, beside those of the same number that have not ended yet. */
const startsBetween = ({ history }: Case, fromMs: number, toMs: number): number =>
  history.actions.filter(
    ({ kind, atMs, ms }) => kind === 'replace' && atMs + ms >= fromMs && atMs + ms <= toMs,
  ).length

/** True if nothing passed between a gateway and Redis while a call was decided, and no gateway had started or ended before. */
const isAlone = ({ history }: Case, { gateway, askedAtMs, toldAtMs }: Witness): boolean =>
  history.actions.every(({ kind, atMs }) => kind !== 'replace' || atMs > toldAtMs) &&
  history.actions.some(
    (action) =>
      action.kind === 'hang' &&
      action.gateway === gateway &&
      action.atMs < askedAtMs &&
      toldAtMs < action.atMs + action.ms,
  )

/**
 * Finds calls that were admitted although as many as the limit were in progress, of which Redis or the gateway itself had to know;
 * without Redis, as many at this gateway as its part.
 */
function* excess(all: AtOnce, inProgress: readonly Witness[]): Generator<Violation> {
  const { one, silences } = all
  for (const call of inProgress) {
    const { gateway, askedAtMs, toldAtMs } = call
    const isByRedis = overlapping(silences[gateway]!, askedAtMs, toldAtMs).every(({ isPause }) => isPause)
    const known = inProgress.filter(
      (other) =>
        other !== call &&
        isInProgress(one, other, askedAtMs, toldAtMs) &&
        ((other.gateway === gateway && startsBetween(one, other.toldAtMs, toldAtMs) === 0) ||
          (isByRedis && isStored(all, other, askedAtMs, toldAtMs))),
    )
    const whole = mostBetween(one, askedAtMs, toldAtMs)
    const limit = isAlone(one, call) ? partOf(whole, one.history.gateways) : whole
    if (known.length < limit) continue
    const text = `a call of ${one.name} by ${one.client} was admitted at ${toldAtMs} beside ${known.length}, limit ${limit}`
    yield { promise: 'limit', text }
    return
  }
}

/**
 * Finds instants at which more calls were in progress than the sum of what is promised: the limit, as much again for each loss, and
 * as much again for each gateway that was without Redis or did not run, but for the first if all were.
 */
function* excessInSum(
  { one, silences, losses }: AtOnce,
  inProgress: readonly Witness[],
): Generator<Violation> {
  for (const { toldAtMs: atMs } of inProgress) {
    const now = inProgress.filter((other) => isInProgress(one, other, atMs, atMs))
    if (now.length === 0) continue
    const fromMs = Math.min(...now.map(({ askedAtMs }) => askedAtMs))
    const limit = mostBetween(one, fromMs, atMs)
    const silent = silences.filter((spans) => overlapping(spans, fromMs, atMs).length > 0).length
    const started = startsBetween(one, fromMs, atMs)
    const times = Math.min(silences.length, 1 + silent) + started + overlapping(losses, fromMs, atMs).length
    if (now.length <= limit * times) continue
    const text = `${now.length} calls of ${one.name} by ${one.client} in progress at ${atMs}, limit ${limit}`
    yield { promise: 'sum', text }
    return
  }
}

/** Finds refusals of a limit that had a place. A call whose gateway or whose answer was lost may hold one for as long as a lease. */
function* refusedWithRoom(all: AtOnce, inProgress: readonly Witness[]): Generator<Violation> {
  const { one, leaseMs, silences, losses } = all
  const { name, client, calls, doubts } = one
  for (const call of calls) {
    const { gateway, askedAtMs, toldAtMs } = call
    if (call.refusedBy !== name) continue
    const rules = rulesBetween(one, askedAtMs - GRACE_MS, toldAtMs)
    const limit = Math.min(...rules.map((rule) => rule.limit))
    // Leases end later by as much as the clock was set back.
    const backMs = clockSteps(one, 0, toldAtMs).reduce((sum, { byMs }) => sum + Math.max(0, -byMs), 0)
    const longestMs = leaseMs + backMs + TURN_MS
    const isSilent = overlapping(silences[gateway]!, askedAtMs, toldAtMs).length > 0
    const isUnsure = isSilent || overlapping(losses, askedAtMs, toldAtMs).length > 0
    const needed = isSilent ? partOf(limit, gatewaysAt(one, askedAtMs)) : limit
    const endOf = (other: Witness): number =>
      freeAt(all, other.isCut === true ? undefined : other.gateway, placeEndMs(one, other), longestMs)
    const held = inProgress.filter((other) => other.askedAtMs <= toldAtMs && endOf(other) >= askedAtMs)
    // Until it knows that Redis has them, a gateway counts its own calls beside.
    const twice = isUnsure ? held.filter((other) => other.gateway === gateway).length : 0
    const unsure = doubts.filter((doubt) => {
      if (doubt === call || doubt.askedAtMs > toldAtMs) return false
      return freeAt(all, doubt.gateway, doubt.toldAtMs, longestMs) >= askedAtMs
    })
    if (held.length + twice + unsure.length >= needed) continue
    const text = `a call of ${name} by ${client} was refused at ${toldAtMs} beside ${held.length}, limit ${limit}`
    yield { promise: 'early', text }
    return
  }
}
