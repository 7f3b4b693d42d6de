import { covers, isWithin, parsePattern, type Pattern } from '../../downstream/pattern.ts'
import type { Settings } from '../schema.ts'
import { type Issue, issueAt } from '../yaml/issue.ts'

/** The prefix and the host that a team's file claims. */
export interface Claim {
  readonly prefix?: string | undefined
  readonly host?: string | undefined
}

/** Returns the pattern of every request below a valid claim; `hosts` are `listen.hosts`. */
export function ownedBy({ prefix = '', host }: Claim, hosts: readonly string[] | undefined): Pattern {
  const pattern = parsePattern(`${host ?? ''}${prefix.replace(/\/+$/, '')}/*`) as Pattern
  return host === undefined ? { ...pattern, hosts } : pattern
}

/** Writes a claim as the pattern of the route that takes its place while the file has mistakes. */
export const writeClaim = ({ prefix = '', host = '' }: Claim): string =>
  `${host}${prefix.replace(/\/+$/, '')}/*`

/** True if some request is below both. */
export function overlap(a: Pattern, b: Pattern): boolean {
  const [shorter, longer] = a.segments.length <= b.segments.length ? [a, b] : [b, a]
  const anyHost = { host: undefined, hosts: undefined }
  return covers({ ...shorter, ...anyHost }, { ...longer, ...anyHost }) && shareHost(a, b)
}

function shareHost(a: Pattern, b: Pattern): boolean {
  const [some, others] = [a, b].map(({ host, hosts }) => (host === undefined ? hosts : [host]))
  if (some === undefined || others === undefined) return true
  return some.some((host) => others.includes(host))
}

/** Yields routes of a team that are not below its claim, as their paths are compared: in canonical spelling. */
export function* strayRoutes(routes: Settings['routes'], claim: Claim): Generator<Issue> {
  const owned = ownedBy({ prefix: claim.prefix }, undefined)
  for (const [i, route] of routes.entries()) {
    const { host } = route
    const path = ['routes', i, 'match']
    if (!isWithin(route, owned))
      yield issueAt(path, `is not below "${claim.prefix}", which this file owns; correct it`)
    else if (host !== undefined && host !== claim.host) {
      const owner = claim.host === undefined ? 'owns no host' : `owns "${claim.host}"`
      yield issueAt(path, `is a route for the host "${host}", but this file ${owner}; remove the host`)
    }
  }
}

/** Yields what prevents a claim: a host that the main file does not list, or its routes below the claim. */
export function* claimIssues(main: Settings, claim: Claim): Generator<Issue> {
  const { host } = claim
  const { hosts } = main.listen
  if (host !== undefined && hosts?.includes(host) !== true)
    yield issueAt(['host'], 'is not one of "listen.hosts" of the main file; list it there')
  const owned = ownedBy(claim, hosts)
  const taken = main.routes.find((route) => isWithin({ ...route, hosts }, owned))
  if (taken !== undefined)
    yield issueAt(
      [placeOf(claim)],
      `takes the route "${taken.match}" of the main file; write another, or remove that route`,
    )
}

/** The key at which a conflict of a claim is reported. */
export const placeOf = ({ prefix }: Claim): string => (prefix === undefined ? 'host' : 'prefix')

/** The owned patterns of teams that overlap with a claim. */
export const conflictsOf = <T extends { readonly owned: Pattern }>(
  owned: Pattern,
  teams: readonly T[],
): readonly T[] => teams.filter((team) => overlap(owned, team.owned))
