import type { Limit } from '../policy/limit.ts'
import { byName } from '../runtime/grouping.ts'
import { asList } from '../runtime/json.ts'
import type { Settings } from './schema.ts'
import { costOf } from './sections/costs.ts'
import { type Issue, issueAt, issueAtKey, type Path } from './yaml/issue.ts'

type Route = Settings['routes'][number]

/** Yields clients that are listed twice, or whose settings fit no issuer or no limit. */
export function* clientIssues({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = asList(tokens ?? [])
  const named = byName(limits)
  const shared = new Set(limits.map(({ counts }) => counts))
  const firsts = new Map<string, number>()
  for (const [i, { id, issuer: name = issuers[0]?.issuer, limits: own }] of clients.entries()) {
    const issuer = issuers.find(({ names }) => name !== undefined && names.includes(name))
    if (name !== undefined && issuer === undefined)
      yield issueAt(['clients', i, 'issuer'], 'is not an issuer of "tokens"; write one of them, or remove it')
    const key = JSON.stringify([issuer?.issuer ?? name, id])
    const first = firsts.get(key)
    if (first === undefined) firsts.set(key, i)
    else yield issueAt(['clients', i, 'id'], `is also in clients[${first}]; merge them`)
    for (const [name, { windowMs }] of Object.entries(own)) {
      const limit = named.get(name)
      if (limit !== undefined)
        yield* ownLimitIssues(limit, shared.has(name), windowMs, ['clients', i, 'limits', name])
    }
  }
}

/** Yields numbers of plans that their limits do not admit, and claims that name plans without any. */
export function* planIssues(settings: Settings): Generator<Issue> {
  const { plans, tokens } = settings
  const named = byName(settings.limits)
  for (const [plan, numbers] of Object.entries(plans))
    for (const [name, most] of Object.entries(numbers)) {
      const limit = named.get(name)
      if (limit !== undefined) yield* planNumberIssues(settings, limit, most, ['plans', plan, name])
    }
  if (Object.keys(plans).length > 0) return
  for (const [i, { planClaim }] of asList(tokens ?? []).entries())
    if (planClaim !== undefined)
      yield issueAtKey(
        ['tokens', ...(Array.isArray(tokens) ? [i] : []), 'planClaim'],
        'needs "plans"; write them',
      )
}

/** Yields a plan's number for a limit that does not count by client, or one below what a call of a route costs. */
function* planNumberIssues({ routes }: Settings, limit: Limit, most: number, path: Path): Generator<Issue> {
  if (!limit.per.includes('client')) {
    yield issueAtKey(path, NOT_PER_CLIENT)
    return
  }
  const isRefused = (route: Route): boolean =>
    route.limits.includes(limit.name) && !limit.isConcurrent && costOf(route, limit) > most
  // A number of 0 refuses all calls, as is said of it.
  const refused = most === 0 ? undefined : routes.find(isRefused)
  if (refused !== undefined)
    yield issueAt(
      path,
      `is below the cost of "${refused.match}", so that it refuses every call of that route; write at least ${costOf(refused, limit)}, or 0 for no call`,
    )
}

const NOT_PER_CLIENT = 'is not counted per client; add client to its "per" or remove this'

/** Yields a client's own limit, or its window, that the limit of that name does not admit. */
function* ownLimitIssues(
  limit: Limit,
  isShared: boolean,
  windowMs: number | undefined,
  path: Path,
): Generator<Issue> {
  const { name, per, calendar, isConcurrent, counts, together } = limit
  if (!per.includes('client')) {
    yield issueAtKey(path, NOT_PER_CLIENT)
    return
  }
  if (windowMs === undefined) return
  if (calendar !== undefined || isConcurrent === true || counts !== undefined || isShared)
    yield issueAt(
      [...path, 'window'],
      'does not apply to a calendar, calls at once or a shared counter; remove it',
    )
  else if (typeof together === 'number' && together > windowMs)
    yield issueAt([...path, 'window'], `is shorter than "together" of "${name}"; write at least that`)
}
