import { isDeepStrictEqual } from 'node:util'
import type { Condition } from '../policy/conditions.ts'
import { counterNameOf } from '../policy/key.ts'
import type { Limit } from '../policy/limit.ts'
import { kindOf, type Parameters, secretParts } from '../policy/parameter-kinds.ts'
import { partOf, wordOf } from '../policy/words.ts'
import { groupBy } from '../runtime/grouping.ts'
import type { Compiled } from './config.ts'
import { DURATION_UNITS } from './sections/values.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

type Route = Compiled['routes'][number]

/**
 * Bytes that Redis needs for a counter of one call: 240 to 500, by the length of its key. A limit
 * with `together` has two keys.
 */
const KEY_BYTES = 350
/** Bytes that the digest of a secret part takes more than an id. */
const DIGEST_BYTES = 50
/** Calls of the limit that a warning suggests: 7 MB of counters for each caller. */
const SUGGESTED_CALLS = 20_000
/** Matches a kind of parameter that lists all values, such as `accounts|balances`. */
const FINITE_KIND = /^[\w-]+(?:\|[\w-]+)+$/

/**
 * Warns about limits whose counters callers choose, on a route where no other limit bounds how many
 * of them exist at a time: their keys would fill Redis, which then counts no calls at all.
 */
export function* chosenKeyWarnings({ limits, routes, parameters, upstreams }: Compiled): Generator<Issue> {
  const identityHeaders = new Map(upstreams.map(({ name, identityHeaders }) => [name, identityHeaders]))
  const uses = routes.flatMap((route) => route.limits.map(({ name }) => ({ name, route })))
  const usesOf = groupBy(uses, ({ name }) => name)
  const warned = new Set<string>()
  for (const limit of limits) {
    const counter = counterNameOf(limit)
    if (limit.isConcurrent || warned.has(counter)) continue
    for (const { route } of usesOf.get(limit.name) ?? []) {
      const trusted = identityHeaders.get(route.upstream ?? '') ?? []
      const chosenOf = (one: Limit): readonly string[] => chosenPartsOf(one, parameters, trusted)
      const chosen = chosenOf(limit)
      const bounds = boundsOf(limit, route, chosenOf)
      if (chosen.length === 0 || bounds.some(({ windowMs }) => windowMs >= limit.windowMs)) continue
      warned.add(counter)
      const path = ['limits', limit.name, 'per', limit.per.indexOf(chosen[0]!)]
      yield issueAt(path, describe(limit, route, { chosen, bounds, parameters }))
      break
    }
  }
}

/**
 * Returns the parts with any number of values that a caller chooses: header fields, path parameters,
 * and claims after another part, because a client may get tokens with many values of them. Fields of
 * `trusted` are read from trusted proxies only.
 */
function chosenPartsOf(
  { per, parameters: own }: Limit,
  parameters: Parameters,
  trusted: readonly string[],
): readonly string[] {
  const fromProxies = new Set(trusted.map((field) => partOf(`header:${field}`)))
  return per.filter((part, i) => {
    const { chosenBy } = wordOf(part)
    if (chosenBy === 'nobody' || fromProxies.has(part)) return false
    if (FINITE_KIND.test(kindOf(own ?? parameters, part) ?? '')) return false
    return chosenBy === 'callers' || i > 0
  })
}

const isWithin = (some: readonly Condition[] = [], all: readonly Condition[] = []): boolean =>
  some.every((one) => all.some((other) => isDeepStrictEqual(one, other)))

/** Returns the limits of a route that count, without a chosen part, each call that `limit` counts. */
function boundsOf(
  limit: Limit,
  route: Route,
  chosenOf: (limit: Limit) => readonly string[],
): readonly Limit[] {
  return route.limits.filter((other) => {
    if (other.shadow || other.isConcurrent || other.countsSuccess || other.together !== undefined)
      return false
    if (other.skipsMissing === true && other.per.some((part) => wordOf(part).mayLack)) return false
    if (!isWithin(other.when, limit.when) || !isWithin(other.unless, limit.unless)) return false
    return chosenOf(other).length === 0
  })
}

interface Chosen {
  readonly chosen: readonly string[]
  readonly bounds: readonly Limit[]
  readonly parameters: Parameters
}

function describe(limit: Limit, route: Route, { chosen, bounds, parameters }: Chosen): string {
  const { per, windowMs, together } = limit
  const secrets = secretParts(parameters)
  const keyBytes = KEY_BYTES + DIGEST_BYTES * per.filter((part) => secrets.has(part)).length
  const bytes = together === undefined ? keyBytes : 2 * keyBytes
  const admittedBy = (bound: Limit): number => mostOf(bound) * Math.ceil(windowMs / bound.windowMs)
  const [bound] = bounds.toSorted((a, b) => admittedBy(a) - admittedBy(b))
  const span = formatMs(windowMs)
  const calls = bound && admittedBy(bound)
  const amount =
    calls === undefined
      ? 'and no limit of the route bounds their number'
      : `and "${bound!.name}" admits ${calls} calls in that time, ${formatBytes(calls * bytes)} for each of its counters`
  return (
    `is chosen by callers: each value takes ${bytes} B of the store's memory for ${span}, ${amount}; ` +
    `at "${route.match}", add a limit without it and for at least that time, ` +
    `such as ${suggestionFor(limit, route, chosen)}: ${formatBytes(SUGGESTED_CALLS * bytes)}`
  )
}

/** Returns the highest number of calls that a limit may allow. */
function mostOf({ limit, claim }: Limit): number {
  return Math.max(limit, claim?.max ?? 0, ...Object.values(claim?.values ?? {}))
}

/** True for a part that says who calls, and that callers do not choose. */
function isOfCaller(part: string): boolean {
  const { isIdentity, chosenBy } = wordOf(part)
  return isIdentity && chosenBy !== 'callers'
}

function suggestionFor(limit: Limit, route: Route, chosen: readonly string[]): string {
  const caller = route.authenticate === 'none' ? 'ip' : 'client'
  const kept = limit.per.filter((part) => isOfCaller(part) && !chosen.includes(part))
  const per = (kept.length > 0 ? kept : [caller]).map((part) => (part.includes(':') ? `"${part}"` : part))
  const { calendar, windowMs } = limit
  const window =
    calendar === undefined
      ? formatMs(windowMs)
      : `{ calendar: ${calendar.unit}, timezone: ${calendar.timezone} }`
  return `{ per: [${per.join(', ')}], limit: ${SUGGESTED_CALLS}, window: ${window} }`
}

/** Formats a duration in the largest unit that divides it. */
function formatMs(durationMs: number): string {
  const [unit, unitMs] = Object.entries(DURATION_UNITS).findLast(([, ms]) => durationMs % ms === 0) ?? [
    'ms',
    1,
  ]
  return `${durationMs / unitMs}${unit}`
}

function formatBytes(bytes: number): string {
  const units = ['kB', 'MB', 'GB', 'TB']
  let value = bytes / 1000
  let unit = 0
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${units[unit]}`
}
