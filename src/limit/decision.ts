// oxlint-disable-next-line no-restricted-imports -- a pure formatter
import { serializeList } from 'structured-headers'
import { type Refusal, tooManyRequests } from '../errors.ts'
import type { Quota } from './limit.ts'
import type { Allowance, Mode } from './store.ts'

export interface Decision {
  readonly admitted: boolean
  /** In the order of the route's limits; of a cached refusal only those that are known; none where `mode` is `allow`. */
  readonly allowances: readonly Allowance[]
  /** Of the limits that refused, the one with the longest wait. */
  readonly refusedBy?: Allowance
  readonly mode: Mode
  /** Epoch milliseconds of the store's clock; undefined where `mode` is `allow`. */
  readonly decidedAt?: number | undefined
  /** True if the refusal was answered without the store. */
  readonly cached: boolean
  /** True if its DPoP proof was used before; nothing is charged then. */
  readonly replayed?: boolean
}

/**
 * Returns the header fields of a decision, as text for `addFields`: for an admitted call those of the route's first limit, for a
 * refused one those of the limit that refused, with `Retry-After` (RFC 9110 section 10.2.3).
 */
export function decisionHeaders(decision: Decision): string {
  const reported = decision.refusedBy ?? decision.allowances.find(({ shadow }) => !shadow)
  if (reported === undefined) return ''
  const { limit, remaining, resetAt } = reported
  const headers = `\r\nX-RateLimit-Limit: ${limit}\r\nX-RateLimit-Remaining: ${remaining}\r\nX-RateLimit-Reset: ${iso(resetAt)}`
  return decision.admitted ? headers : `${headers}\r\nRetry-After: ${retryAfterSecs(reported)}`
}

const HOUR_MS = 3_600_000
const TWO_DIGITS = Array.from({ length: 60 }, (_, number) => String(number).padStart(2, '0'))
let lastHour = 0
let lastHourText = '1970-01-01T00:'

/** `Date.toISOString`, six times as fast for instants of the same hour, which resets mostly are. */
function iso(ms: number): string {
  const hour = Math.floor(ms / HOUR_MS)
  if (hour !== lastHour) {
    // oxlint-disable-next-line no-restricted-globals -- reads no clock
    lastHourText = new Date(hour * HOUR_MS).toISOString().slice(0, 14)
    lastHour = hour
  }
  const rest = ms - hour * HOUR_MS
  const seconds = Math.floor(rest / 1000)
  const millis = rest - seconds * 1000
  const zeros = millis < 10 ? '00' : millis < 100 ? '0' : ''
  return `${lastHourText}${TWO_DIGITS[Math.floor(seconds / 60)]!}:${TWO_DIGITS[seconds % 60]!}.${zeros}${millis}Z`
}

/** RFC 9651 section 3.3.1: the greatest integer of a structured field. */
const MOST = 999_999_999_999_999

/**
 * Returns `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10) of the decided limits that are not
 * shadow, as text for `addFields`. A limit that a cached refusal knows nothing of is only in the policy. The draft has
 * only whole seconds, which are rounded up.
 */
export function draftHeaders({ allowances }: Decision, quotas: readonly Quota[]): string {
  const live = allowances.filter(({ shadow }) => !shadow)
  if (live.length === 0) return ''
  const policies = quotas
    .filter(({ shadow }) => !shadow)
    .map((quota) => live.find(({ name }) => name === quota.name) ?? quota)
  const policy = serializeList(
    policies.map(({ name, limit, windowMs }) => [name, parameters('q', limit, 'w', windowMs)]),
  )
  const left = serializeList(
    live.map(({ name, remaining, resetAfterMs }) => [name, parameters('r', remaining, 't', resetAfterMs)]),
  )
  return `\r\nRateLimit-Policy: ${policy}\r\nRateLimit: ${left}`
}

function parameters(callsName: string, calls: number, secsName: string, ms: number): Map<string, number> {
  return new Map([
    [callsName, Math.min(calls, MOST)],
    [secsName, Math.ceil(ms / 1000)],
  ])
}

/** Returns the 429 of a refused decision; its `Retry-After` is among `decisionHeaders`. Throws a TypeError for an admitted decision. */
export function exceeded({ allowances, refusedBy }: Decision): Refusal {
  if (refusedBy === undefined) throw new TypeError('An admitted call has no refusal.')
  const { name, limit, windowMs } = refusedBy
  const violatedPolicies: string[] = []
  for (const allowance of allowances) if (refuses(allowance)) violatedPolicies.push(allowance.name)
  const secs = retryAfterSecs(refusedBy)
  const message =
    limit === 0
      ? `The limit "${name}" allows this client no calls.`
      : `The limit "${name}" allows ${count(limit, 'call')} in ${duration(windowMs)}. Retry in ${count(secs, 'second')}.`
  return tooManyRequests(message, { retryAfterSecs: secs, violatedPolicies })
}

/** Returns the refusing live allowance with the longest wait; undefined if none refuses. */
export function longestWait(allowances: readonly Allowance[]): Allowance | undefined {
  let longest: Allowance | undefined
  for (const allowance of allowances) {
    if (!refuses(allowance)) continue
    if (longest === undefined || allowance.retryAfterMs > longest.retryAfterMs) longest = allowance
  }
  return longest
}

function refuses({ admitted, shadow }: Allowance): boolean {
  return !admitted && !shadow
}

/** Whole seconds, rounded up, at least 1. */
function retryAfterSecs({ retryAfterMs }: Allowance): number {
  return Math.max(1, Math.ceil(retryAfterMs / 1000))
}

const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
  ['millisecond', 1],
] as const

/** In the largest unit that it is a whole number of: `1 minute`, `90 seconds`. */
function duration(ms: number): string {
  const [unit, unitMs] = UNITS.find(([, unitMs]) => ms % unitMs === 0)!
  return count(ms / unitMs, unit)
}

function count(number: number, noun: string): string {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}s`
}
