import { TIMEOUT_MS } from './gateway.ts'
import type { Action, LimitName } from './history.ts'
import { type Call, type Played, togetherMs } from './play.ts'
import { serverMicroseconds } from './time.ts'

/** A broken promise. */
export interface Violation {
  readonly promise: 'limit' | 'early' | 'wait' | 'proof' | 'late'
  readonly text: string
}

/** A change is in force everywhere, and an answer is forgotten, within this time. */
const GRACE_MS = 1500
/** A gateway that was killed is counted for 10 s, and to the end of an outage that begins within them: each fallback has a smaller part. */
const COUNTED_MS = 20_000

/** Judges the responses by the promises of docs/limits.md. It knows the calls and the faults, and nothing of the code. */
export function judge(played: Played): readonly Violation[] {
  const { history, calls } = played
  const clients = [...new Set(calls.map(({ client }) => client))]
  const keys = clients.flatMap((client) => (['requests', 'sync'] as const).map((name) => ({ client, name })))
  return [
    ...keys.flatMap(({ client, name }) => {
      const own = calls.filter((call) => call.client === client && call.limits.includes(name))
      const { kind } = history.limits[name]
      if (kind === 'access') return [...accesses(played, own, name), ...waits(played, own, name, client)]
      if (kind !== undefined) return [...periods(played, own, name), ...waits(played, own, name, client)]
      return [
        ...excess(played, own, name),
        ...changed(played, own, name),
        ...waits(played, own, name, client),
      ]
    }),
    ...proofs(played),
    ...late(played),
  ].map(({ promise, text }) => ({
    promise,
    text: `${text} (${history.gateways} gateways, seed ${history.seed})`,
  }))
}

const between = (
  actions: readonly Action[],
  kinds: readonly Action['kind'][],
  fromMs: number,
  toMs: number,
) => actions.filter(({ kind, atMs, ms }) => kinds.includes(kind) && atMs <= toMs && atMs + ms >= fromMs)

const losesData = (action: Action): boolean =>
  (action.kind === 'restart' && !action.keepsData) || (action.kind === 'failover' && action.lagMs > 0)

/** The rules of a limit that some gateway may have applied between two instants. */
function rulesBetween({ rules }: Played, name: LimitName, fromMs: number, toMs: number) {
  const all = rules[name]
  return all.filter((rule, i) => rule.fromMs <= toMs && (all[i + 1]?.fromMs ?? Infinity) + GRACE_MS >= fromMs)
}

/** Finds windows with more admitted calls than promised. A call counts only if it is in the window for certain. */
function excess(played: Played, calls: readonly Call[], name: LimitName): readonly Violation[] {
  const { history } = played
  const admitted = calls.filter((call) => call.admitted).toSorted((a, b) => a.askedAtMs - b.askedAtMs)
  let worst: Violation | undefined
  let most = 0
  for (const [i, { askedAtMs: fromMs }] of admitted.entries()) {
    const longest = Math.max(...played.rules[name].map(({ windowMs }) => windowMs))
    const inForce = rulesBetween(played, name, fromMs, fromMs + longest)
    const clocks = between(history.actions, ['clock'], fromMs, fromMs + longest)
    const jumpMs = clocks.reduce(
      (sum, action) => sum + (action.kind === 'clock' ? Math.abs(action.byMs) : 0),
      0,
    )
    const windowMs = Math.min(...inForce.map((rule) => rule.windowMs)) - jumpMs
    const limit = Math.max(...inForce.map((rule) => rule.limit))
    // To the microsecond, the precision of all counters.
    const found = admitted.slice(i).filter(({ toldAtMs }) => toldAtMs < fromMs + windowMs - 0.001)
    const over = found.length - promised(played, limit, fromMs, fromMs + windowMs)
    if (over <= most) continue
    most = over
    worst = {
      promise: 'limit',
      text: `${found.length} calls of ${name} by ${found[0]!.client} in ${windowMs} ms from ${fromMs.toFixed(3)}, limit ${limit}`,
    }
  }
  return worst === undefined ? [] : [worst]
}

/** Finds calendar periods in which more calls were counted or under way at a time than promised. A call counts if it is in the period for certain. */
function periods(played: Played, calls: readonly Call[], name: LimitName): readonly Violation[] {
  const { limit, windowMs } = played.history.limits[name]
  const { aheadMs } = played.history
  const periodOf = (atMs: number): number => Math.floor(serverMicroseconds(atMs, aheadMs) / (windowMs * 1000))
  const certain = calls.filter(
    (call) => call.admitted && periodOf(call.askedAtMs) === periodOf(call.toldAtMs),
  )
  for (const period of new Set(certain.map(({ toldAtMs }) => periodOf(toldAtMs)))) {
    const admitted = certain.filter(({ toldAtMs }) => periodOf(toldAtMs) === period)
    for (const { toldAtMs: atMs } of admitted) {
      const counted = admitted.filter(
        ({ toldAtMs, givenBackAtMs = Infinity }) => toldAtMs <= atMs && givenBackAtMs > atMs,
      )
      const { askedAtMs } = admitted[0]!
      if (counted.length <= promised(played, limit, askedAtMs, atMs)) continue
      const text = `${counted.length} calls of ${name} by ${counted[0]!.client} in the period ${period} at ${atMs.toFixed(3)}, limit ${limit}`
      return [{ promise: 'limit', text }]
    }
  }
  return []
}

/** Finds windows with more accesses than promised. A call belongs to an access if it may have begun within it. */
function accesses(played: Played, calls: readonly Call[], name: LimitName): readonly Violation[] {
  const { limit, windowMs } = played.history.limits[name]
  const admitted = calls.filter((call) => call.admitted).toSorted((a, b) => a.askedAtMs - b.askedAtMs)
  const begun: Call[] = []
  for (const call of admitted) {
    const last = begun.at(-1)
    // A call that the fallback counted is taken to be made up to 10 ms later, or a round trip.
    const toMs = (last?.toldAtMs ?? -Infinity) + togetherMs({ windowMs }) + TIMEOUT_MS
    if (call.askedAtMs > toMs) begun.push(call)
  }
  for (const [i, { askedAtMs: fromMs }] of begun.entries()) {
    const found = begun.slice(i).filter(({ toldAtMs }) => toldAtMs < fromMs + windowMs - 0.001)
    // The first may belong to an access that began before.
    const before = admitted.some(
      ({ askedAtMs, toldAtMs }) =>
        toldAtMs >= fromMs - togetherMs({ windowMs }) - TIMEOUT_MS && askedAtMs < fromMs,
    )
    if (found.length - Number(before) <= promised(played, limit, fromMs, fromMs + windowMs)) continue
    const text = `${found.length} accesses of ${name} by ${found[0]!.client} in ${windowMs} ms from ${fromMs.toFixed(3)}, limit ${limit}`
    return [{ promise: 'limit', text }]
  }
  return []
}

/**
 * Finds, at a single gateway, calls that the limit in force did not allow, also after it was changed: admitted although the last
 * window was full, or refused although two windows had fewer calls.
 */
function changed(played: Played, calls: readonly Call[], name: LimitName): readonly Violation[] {
  const { history, executed } = played
  const { actions } = history
  if (history.gateways > 1 || actions.some((action) => action.kind === 'clock' || losesData(action)))
    return []
  const admitted = calls.filter((call) => call.admitted)
  for (const call of calls) {
    const { askedAtMs, toldAtMs, client } = call
    const longest = 2 * Math.max(...played.rules[name].map(({ windowMs }) => windowMs))
    const [rule, ...others] = rulesBetween(played, name, askedAtMs, toldAtMs)
    const windows = rulesBetween(played, name, askedAtMs - longest, toldAtMs).map(({ windowMs }) => windowMs)
    const isSteady = rule !== undefined && others.length === 0 && windows.every((ms) => ms === rule.windowMs)
    const beforeMs = !call.admitted && call.mode === 'local' ? COUNTED_MS : longest
    if (!isSteady || between(actions, ['replace'], askedAtMs - beforeMs, toldAtMs).length > 0) continue
    const { limit, windowMs } = rule
    if (call.admitted) {
      const before = admitted.filter(
        (other) => other.toldAtMs < askedAtMs && other.askedAtMs > toldAtMs - windowMs,
      )
      if (before.length < limit) continue
      return [
        {
          promise: 'limit',
          text: `a call of ${name} by ${client} was admitted at ${toldAtMs} after ${before.length}, limit ${limit}`,
        },
      ]
    }
    if (call.isReplay || call.refusedBy !== name) continue
    const key = `s:{${client}}:${name}`
    const counted = [
      ...admitted.map((other) => other.toldAtMs),
      ...executed.filter(({ keys }) => keys.includes(key)).map(({ atMs }) => atMs),
    ].filter((atMs) => atMs > askedAtMs - 2 * windowMs && atMs <= toldAtMs + GRACE_MS)
    if (counted.length >= limit) continue
    return [
      {
        promise: 'early',
        text: `a call of ${name} by ${client} was refused at ${toldAtMs} after ${counted.length}, limit ${limit}`,
      },
    ]
  }
  return []
}

/** Returns the calls that docs/limits.md promises at most in a window. */
function promised(
  { history: { actions, gateways } }: Played,
  limit: number,
  fromMs: number,
  toMs: number,
): number {
  const losses = between(actions, ['restart', 'failover'], fromMs, toMs).filter(losesData).length
  const starts = between(actions, ['replace'], fromMs, toMs).length
  const isFaulty = actions.some(({ kind, atMs }) => kind !== 'caller' && kind !== 'change' && atMs <= toMs)
  const byFallback = gateways > 1 && isFaulty ? Math.max(limit, gateways) : 0
  return limit * (1 + losses + starts) + byFallback
}

/**
 * Finds callers that waited `Retry-After`, and were refused again although no other call was admitted since the refusal. With several
 * gateways, one that was replaced, or if Redis's clock is set: since two windows before.
 */
function waits(
  played: Played,
  calls: readonly Call[],
  name: LimitName,
  client: string,
): readonly Violation[] {
  const { history, executed, rules } = played
  const isExact =
    history.gateways === 1 && history.actions.every(({ kind }) => kind !== 'clock' && kind !== 'replace')
  const windowMs = Math.max(...rules[name].map(({ windowMs }) => windowMs))
  const moreMs = isExact ? 0 : 2 * windowMs
  const own = executed.filter(({ keys }) => keys.includes(`s:{${client}}:${name}`))
  /** Its answer was late, or came after the timeout of another question: the fallback had decided its call. */
  const isLost = ({ sentAtMs, answeredAtMs = Infinity }: (typeof own)[number]): boolean =>
    answeredAtMs - sentAtMs >= TIMEOUT_MS ||
    calls.some(
      ({ mode, askedAtMs, toldAtMs }) =>
        mode !== 'store' && askedAtMs <= sentAtMs && toldAtMs > sentAtMs && toldAtMs < answeredAtMs,
    )
  const broken = calls.find(({ admitted, isReplay, refusedBy, waitedFor, toldAtMs }) => {
    if (admitted || isReplay || refusedBy !== name || waitedFor === undefined) return false
    // An access that was under way when another limit refused may be over.
    if (history.limits[name].kind === 'access' && waitedFor.refusedBy !== name) return false
    const [fromMs, toMs] = [waitedFor.askedAtMs - moreMs, toldAtMs]
    const isTaken = calls.some(
      (other) => other.admitted && other.toldAtMs >= fromMs && other.askedAtMs <= toMs,
    )
    const others = between(
      history.actions,
      ['clock', 'replace', 'change'],
      fromMs - GRACE_MS,
      toMs + GRACE_MS,
    )
    if (isTaken || others.length > 0) return false
    // Redis charged a call whose answer was lost: it counts as admitted.
    return !own.some((e) => e.atMs > fromMs - windowMs && e.atMs <= toMs && isLost(e))
  })
  if (broken === undefined) return []
  const { waitedFor, toldAtMs, retryAfterMs, mode } = broken
  return [
    {
      promise: 'wait',
      text: `${client} waited ${waitedFor!.retryAfterMs.toFixed(3)} ms after a refusal by ${waitedFor!.mode} at ${waitedFor!.toldAtMs.toFixed(3)}; ${mode} refused at ${toldAtMs.toFixed(3)}, ${retryAfterMs.toFixed(3)} ms more of ${name}`,
    },
  ]
}

/** Finds proofs that passed more often than once at each gateway. */
function proofs({ history, calls }: Played): readonly Violation[] {
  if (history.actions.some(({ kind }) => kind === 'replace' || kind === 'clock')) return []
  const passed = new Map<string, number>()
  for (const { proof, client, gateway, admitted } of calls) {
    if (proof === undefined || !admitted) continue
    const key = `${client} ${proof} ${gateway}`
    passed.set(key, (passed.get(key) ?? 0) + 1)
  }
  const losses = history.actions.filter(losesData).length
  const twice = [...passed].find(([, times]) => times > 1 + losses)
  return twice === undefined
    ? []
    : [{ promise: 'proof', text: `the proof ${twice[0]} passed ${twice[1]} times` }]
}

/** Finds calls that waited longer than the timeouts of two questions. */
function late({ history, calls }: Played): readonly Violation[] {
  const slow = calls.find(
    ({ askedAtMs, toldAtMs }) =>
      toldAtMs - askedAtMs > 2 * TIMEOUT_MS + 50 &&
      between(history.actions, ['suspend', 'replace'], askedAtMs - 500, toldAtMs).length === 0,
  )
  if (slow === undefined) return []
  return [
    {
      promise: 'late',
      text: `a call at ${slow.askedAtMs} had its response after ${slow.toldAtMs - slow.askedAtMs} ms`,
    },
  ]
}
