import { TIMEOUT_MS } from '../gateway.ts'
import type { Action, History, LimitName, Rule } from '../history.ts'
import { halfOf } from '../halves.ts'
import type { TimedRule } from '../changes.ts'
import type { Call, Played } from '../play.ts'
import { asPlayed, reaches, type Span, spanOf, troublesOf } from './troubles.ts'

/** A broken promise. */
export interface Violation {
  readonly promise: 'limit' | 'sum' | 'early' | 'free' | 'wait' | 'shadow' | 'unavailable' | 'proof' | 'late'
  readonly text: string
}

/** A call as its caller saw it: without what decided it. */
export type Witness = Omit<Call, 'mode' | 'waitedFor'> & {
  readonly waitedFor: Witness | undefined
  /** Of a point that a call reserved and did not use, or used beyond: when it was settled. */
  readonly settledAtMs?: number
}

export interface Timed {
  readonly askedAtMs: number
  readonly toldAtMs: number
}

/** A call that Redis may have charged without its caller's knowledge, or twice. */
export interface Doubt extends Timed {
  readonly admitted: boolean
  /** Undefined if its gateway ended before it responded. */
  readonly gateway?: number
}

/** All that is known of one limit of one client. Those admitted and the doubts are of all limits with the same counter. Calls and doubts are in the order in which they were asked; those admitted and the doubts as often as they take points. */
export interface Case {
  readonly history: History
  readonly client: string
  readonly name: LimitName
  readonly kind: Rule['kind']
  readonly calls: readonly Witness[]
  readonly admitted: readonly Witness[]
  readonly doubts: readonly Doubt[]
  /** The points that calls used beyond their reserves, in the order in which these were asked. */
  readonly owed: readonly Witness[]
  readonly rules: readonly TimedRule[]
  /** Spans in which a gateway may have been without Redis. */
  readonly troubles: readonly Span[]
}

/** A change is in force everywhere, and an answer is forgotten, within this time. */
export const GRACE_MS = 1500
/** A gateway that was killed is counted for two minutes, and to the end of an outage that begins within them. */
const COUNTED_MS = 240_000
/** No call takes longer, unless its gateway is suspended for a long time. */
const LONGEST_MS = 1000
/** The precision of all counters. */
export const MICROSECOND_MS = 0.001

const NAMES = ['requests', 'sync'] as const

/** Returns the cases of a history that was played. */
export function casesOf(record: Played): readonly Case[] {
  const { calls, unanswered, rules, breaks } = record
  const actions = asPlayed(record.history.actions, record.history.isCluster)
  const history = { ...record.history, actions: [...actions, ...breaks] }
  const clients = [...new Set(calls.map(({ client }) => client))]
  const troubles = troublesOf(history.actions)
  return clients.flatMap((client) =>
    NAMES.map((name) => {
      const isOwn = (call: Pick<Call, 'client' | 'limits'>): boolean =>
        call.client === client && call.limits.includes(name)
      /** True for a call that is charged to the counter of the limit. */
      const isCounted = (call: Pick<Call, 'client' | 'limits'>): boolean =>
        call.client === client &&
        call.limits.some((other) => counterOf(history, other) === counterOf(history, name))
      const byTime = (a: { askedAtMs: number }, b: { askedAtMs: number }) => a.askedAtMs - b.askedAtMs
      const own: readonly Witness[] = calls.filter(isOwn).toSorted(byTime)
      const counted = calls.filter(isCounted).toSorted(byTime)
      const sharing = NAMES.filter((other) => counterOf(history, other) === counterOf(history, name))
      const points = counted.filter(({ admitted }) => admitted).map((call) => pointsOf(call, sharing))
      const lost = unanswered.filter(isCounted).map(({ askedAtMs, cost }) => ({
        askedAtMs,
        toldAtMs: askedAtMs + LONGEST_MS,
        admitted: false,
        cost,
      }))
      const doubtful = counted.filter((call) => isDoubtful(history.actions, call))
      return {
        ...{ history, client, name, kind: history.limits[name].kind, calls: own, troubles },
        admitted: points.flatMap(({ reserved }) => reserved),
        owed: points.flatMap(({ owed }) => owed),
        doubts: [...doubtful, ...lost].toSorted(byTime).flatMap(repeated),
        rules: ownRules(history, rules[name], client, name),
      }
    }),
  )
}

/** Returns the limit whose counter the calls of a limit are charged to; undefined for a shadow share, which only reads it. */
function counterOf({ limits }: History, name: LimitName): LimitName | undefined {
  const { counts, shadow } = limits[name]
  return counts !== undefined && shadow === true ? undefined : (counts ?? name)
}

/** The points of a call under a limit, each as a witness. */
interface Points {
  /** Those that it reserved; `settledAtMs` is when those that it did not use were settled. */
  readonly reserved: readonly Witness[]
  /** Those that it used beyond its reserve, from `settledAtMs` on. */
  readonly owed: readonly Witness[]
}

/** Returns the points of a call in the counter of some limits, of which it has at least one. */
function pointsOf(call: Call, names: readonly LimitName[]): Points {
  const { cost, settled } = call
  const used = names.map((name) => settled?.used.get(name)).find((points) => points !== undefined) ?? cost
  const own: Witness = call
  const later: Witness = { ...call, settledAtMs: settled?.atMs ?? Infinity }
  return {
    reserved: Array.from({ length: cost }, (_, i) => (i < used ? own : later)),
    owed: Array.from({ length: Math.max(0, used - cost) }, () => later),
  }
}

/** Returns a call as often as it takes points. */
const repeated = <T extends { readonly cost: number }>(call: T): readonly T[] =>
  Array.from({ length: call.cost }, () => call)

/**
 * True if a fault may have lost the answer to a call, which was under way: a call that is told in no time was not sent to Redis.
 * A question that times out fails those that were sent after it.
 */
function isDoubtful(actions: readonly Action[], { gateway, askedAtMs, toldAtMs }: Witness): boolean {
  if (toldAtMs === askedAtMs) return false
  return actions.some((action) => {
    const span = spanOf(action)
    if (span === undefined || action.kind === 'full' || action.kind === 'readonly') return false
    if (!reaches(action, gateway)) return false
    if (span.fromMs > toldAtMs || askedAtMs > span.toMs + 2 * TIMEOUT_MS) return false
    return !isTooLate(actions, action, { askedAtMs, toldAtMs })
  })
}

/**
 * True if a question can reach Redis only after it has timed out, and so is not charged: it was asked in a silence that lasts. If the
 * clock of Redis is set meanwhile, Redis may not see that it is late.
 */
function isTooLate(actions: readonly Action[], fault: Action, { askedAtMs, toldAtMs }: Timed): boolean {
  const { kind, atMs, ms } = fault
  if (!['hang', 'stall', 'restart', 'failover'].includes(kind)) return false
  if (askedAtMs <= atMs || toldAtMs + TIMEOUT_MS >= atMs + ms) return false
  return !actions.some((other) => other.kind === 'clock' && other.atMs >= atMs && other.atMs <= atMs + ms)
}

/** Returns the rules of a client, whose own limit an override replaces, but not its window. */
function ownRules(
  { own = [] }: History,
  rules: readonly TimedRule[],
  client: string,
  name: LimitName,
): readonly TimedRule[] {
  const mine = own.find((each) => each.client === client && each.name === name)
  if (mine === undefined) return rules
  const { limit, windowMs } = mine
  return rules.map((rule) => ({
    ...rule,
    limit: rule.isOverride === true ? rule.limit : limit,
    windowMs: windowMs ?? rule.windowMs,
  }))
}

/** Returns the rules that some gateway may have applied between two instants. */
export const rulesBetween = ({ rules }: Case, fromMs: number, toMs: number): readonly TimedRule[] =>
  rules.filter((rule, i) => rule.fromMs <= toMs && (rules[i + 1]?.fromMs ?? Infinity) + GRACE_MS >= fromMs)

/** Returns the rule in force at a call, if it and its window were the only ones for as long as calls may count; a window is `longest` at most. */
export function steadyRule(one: Case, { askedAtMs, toldAtMs }: Witness): TimedRule | undefined {
  const longest = Math.max(...one.rules.map(({ windowMs }) => windowMs))
  const [rule, ...others] = rulesBetween(one, askedAtMs, toldAtMs)
  if (rule === undefined || others.some(({ limit }) => limit !== rule.limit)) return undefined
  const before = rulesBetween(one, askedAtMs - 2 * longest, toldAtMs)
  return before.every(({ windowMs }) => windowMs === rule.windowMs) ? rule : undefined
}

export const overlapping = <T extends Span>(spans: readonly T[], fromMs: number, toMs: number): T[] =>
  spans.filter((span) => span.fromMs <= toMs && span.toMs >= fromMs)

export const actionsBetween = (
  { actions }: History,
  kinds: readonly Action['kind'][],
  fromMs: number,
  toMs: number,
): readonly Action[] =>
  actions.filter(({ kind, atMs, ms }) => kinds.includes(kind) && atMs <= toMs && atMs + ms >= fromMs)

export const losesData = (action: Action): boolean =>
  (action.kind === 'restart' && !action.keepsData) || (action.kind === 'failover' && action.lagMs > 0)

/** Returns the index of the first call, of many in the order of their asking, that was asked at an instant or later. */
function indexAt(calls: readonly Timed[], atMs: number): number {
  let [low, high] = [0, calls.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (calls[middle]!.askedAtMs < atMs) low = middle + 1
    else high = middle
  }
  return low
}

const longest = new WeakMap<readonly Timed[], number>()

/** Returns the time of the call that took longest. */
function longestOf(calls: readonly Timed[]): number {
  const known = longest.get(calls)
  if (known !== undefined) return known
  let ms = LONGEST_MS
  for (const { askedAtMs, toldAtMs } of calls) ms = Math.max(ms, toldAtMs - askedAtMs)
  longest.set(calls, ms)
  return ms
}

/** Returns the calls, of many in the order of their asking, that may have been under way between two instants. */
export function between<T extends Timed>(calls: readonly T[], fromMs: number, toMs: number): readonly T[] {
  const found: T[] = []
  for (
    let i = indexAt(calls, fromMs - longestOf(calls));
    i < calls.length && calls[i]!.askedAtMs <= toMs;
    i++
  )
    if (calls[i]!.toldAtMs >= fromMs) found.push(calls[i]!)
  return found
}

/** Returns the number of the calls that `between` returns. */
export function countBetween(calls: readonly Timed[], fromMs: number, toMs: number): number {
  const first = indexAt(calls, fromMs)
  let count = indexAt(calls, toMs + MICROSECOND_MS / 2) - first
  const earliestMs = fromMs - longestOf(calls)
  for (let i = first - 1; i >= 0 && calls[i]!.askedAtMs >= earliestMs; i--)
    if (calls[i]!.toldAtMs >= fromMs) count++
  return count
}

/**
 * Returns the times that the clock of Redis was set between two instants, or before by so much, one after the other, that it matters
 * still.
 */
export function clockSteps({ history: { actions, isCluster }, client }: Case, fromMs: number, toMs: number) {
  let steps: (Action & { kind: 'clock' })[] = []
  let untilMs = -Infinity
  for (const action of actions) {
    if (action.kind !== 'clock' || action.atMs > toMs) continue
    if (isCluster && action.half !== halfOf(`{${client}}`)) continue
    if (untilMs < Math.min(fromMs, action.atMs)) steps = []
    steps.push(action)
    untilMs = Math.max(untilMs, action.atMs) + Math.abs(action.byMs)
  }
  return untilMs < fromMs ? [] : steps
}

/** Returns the gateways that a fallback may count at an instant: also those that were replaced. */
export const gatewaysAt = ({ history }: Case, atMs: number): number =>
  history.gateways + actionsBetween(history, ['replace'], atMs - COUNTED_MS, atMs).length
