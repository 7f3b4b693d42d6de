import type { Config } from '../../config/config.ts'
import { acceptsKeys, acceptsTokens, createRouter, type Match, type Params } from '../../downstream/router.ts'
import { matchReadings, refuseReadings } from '../../downstream/readings.ts'
import { canonicalPath, decodeSegment, foldCase, hasDotSegment } from '../../downstream/target.ts'
import { parseTarget, segmentsOf, servedHosts } from '../../downstream/target.ts'
import { Refusal } from '../../errors.ts'
import type { Quota } from '../../limit/quota.ts'
import { NO_FACTS } from '../../policy/facts.ts'
import type { Limit } from '../../policy/limit.ts'
import { type Parameters, secretParts } from '../../policy/parameter-kinds.ts'
import { compileRoutes } from '../../policy/routes.ts'
import { digestOf, isShortForm, shortenDigest } from '../../policy/secret-values.ts'
import { wordOf } from '../../policy/words.ts'
import type { LoggedCall } from './formats/call.ts'
import { unloggedBy } from './report.ts'

/** True for a segment of a logged path that the log has only in its short form. */
const isShortSegment = (segment: string): boolean => isShortForm(decodeSegment(segment))

/** Why a call is not replayed. */
type Uncharged = 'malformed' | 'unmatched' | 'unauthenticated' | 'unlimited' | 'lacking'

/** The quotas of a call, and who they count: the client, or the first that a limit counts by. */
export interface ChargedCall {
  readonly quotas: readonly Quota[]
  readonly caller: string | undefined
  /**
   * Returns the points of a quota that the call turned out to use, by its log; undefined of a limit
   * that is not charged by that, and if they are not known: the reserve then stays.
   */
  usedOf(quota: Quota): number | undefined
}

/**
 * Creates the function that returns the quotas of a logged call, or why it has none. Secret
 * parameters are counted in the short form that the log has; two values may have the same one.
 */
export function createCharges(config: Config) {
  const secrets = secretParts(config.parameters)
  const findRoute = createFinder(config, secrets)
  const withKeys = new Set(config.apiKeys.map(({ client }) => client))
  return (call: LoggedCall, nowMs: number): ChargedCall | Uncharged => {
    const { method, client, ip } = call
    const found = findRoute(call)
    if (typeof found === 'string') return found
    if (found === undefined || 'allow' in found) return 'unmatched'
    const { route } = found
    // The recorded gateway did not authenticate a call that this one would.
    const authenticates = acceptsTokens(route) || acceptsKeys(route)
    if (authenticates && client === undefined) return 'unauthenticated'
    // A client of Sluice's own log had a key then. A file without keys yet is for a trial.
    const mayLackKey = call.requested !== undefined && withKeys.size > 0
    const needsKey = acceptsKeys(route) && !acceptsTokens(route)
    if (mayLackKey && needsKey && !withKeys.has(client!)) return 'unauthenticated'
    if (route.limits.length === 0) return 'unlimited'
    const params = shortenParams(found.params, secrets)
    // Limits by what no log contains were left out above.
    function isLogged(part: string): boolean {
      const { from } = wordOf(part)
      if (from === 'path') return params[part] !== undefined
      return from !== 'connection' || ip !== undefined
    }
    if (!route.limits.every(({ per }) => per.every(isLogged))) return 'lacking'
    // A short form is not of the kind of its value, which the recorded gateway has checked.
    if (!Object.values(found.params).some(isShortSegment) && route.refuseParams(found) !== undefined)
      return 'malformed'
    const caller = { client, ip: ip ?? '' }
    const facts = { ...NO_FACTS, params, method, route }
    const quotas = route.quotas(caller, facts, nowMs)
    if (quotas instanceof Refusal) return 'lacking'
    // A user of a route without authentication is not who its limits count.
    const [counted] = authenticates ? [] : route.callersOf(quotas, caller, facts)
    return { quotas, caller: counted?.shown ?? client, usedOf: usedBy(call, route.limits) }
  }
}

function usedBy({ failed, settled }: LoggedCall, limits: readonly Limit[]): ChargedCall['usedOf'] {
  const byUse = new Set(limits.filter(({ actual }) => actual !== undefined).map(({ name }) => name))
  return ({ name, countsSuccess }) => {
    if (failed && countsSuccess) return 0
    if (!byUse.has(name)) return undefined
    return typeof settled === 'object' ? settled.get(name) : settled
  }
}

/** Creates the function that finds the route of a logged call, or says why it has none. */
function createFinder(config: Config, secrets: ReadonlySet<string>) {
  // A log may not contain the host of a call.
  const logged = config.routes.map((route) => ({
    ...route,
    hosts: undefined,
    parameters: withoutSecrets(route.parameters),
    limits: route.limits
      .filter((limit) => unloggedBy(limit) === undefined)
      .map((limit) => ({ ...limit, parameters: withoutSecrets(limit.parameters) })),
  }))
  const routes = compileRoutes(logged, { ...config, parameters: withoutSecrets(config.parameters)! })
  const owners = config.teams.map((team) => ({ ...team, owned: { ...team.owned, hosts: undefined } }))
  const match = createRouter(routes, owners)
  const byPattern = new Map(routes.map((route) => [route.match, { route, params: NO_FACTS.params }]))
  const served = servedHosts(routes, config.listen.hosts)
  const namesHosts = routes.some(({ host }) => host !== undefined)
  type Found = Match<(typeof routes)[number]> | 'malformed' | 'lacking'

  /**
   * Finds the route of a line of Sluice. It is the recorded one without the path or the host, and if
   * the path has short forms in which another route could be named.
   */
  function findRecorded({ method, host, path, route: recorded = '' }: LoggedCall): Found {
    if (path === undefined || host === undefined) return byPattern.get(recorded)
    const logged = segmentsOf(path)
    const isShortened = logged.some(isShortSegment)
    // A short form is not a path; Sluice has checked the whole one.
    const canonical = isShortened ? path : canonicalPath(path)
    if (canonical === undefined || hasDotSegment(canonical)) return 'malformed'
    const segments = isShortened ? logged : segmentsOf(canonical)
    const found = match(method, host, segments)
    const { route, params } =
      found !== undefined && 'route' in found ? found : { route: undefined, params: NO_FACTS.params }
    const known = Object.keys(params).filter((name) => secrets.has(name) && isShortSegment(params[name]!))
    if (!isShortened) return found
    const isSure = segments.filter(isShortSegment).length === known.length
    return isSure || route?.match === recorded ? found : byPattern.get(recorded)
  }

  /** Finds the route of a request to another proxy, as Sluice does for a request of its own. */
  function findRequested({ method, host, requested = '' }: LoggedCall): Found {
    if (host === undefined && namesHosts) return 'lacking'
    const target = parseTarget(requested, host === undefined ? [] : [host], served, host === undefined)
    if (target instanceof Refusal) return 'malformed'
    const readings = target.isAmbiguous ? matchReadings(match, method, target) : []
    if (readings instanceof Refusal || refuseReadings(readings) !== undefined) return 'malformed'
    return match(method, target.host, target.segments)
  }

  return (call: LoggedCall): Found =>
    call.requested === undefined ? findRecorded(call) : findRequested(call)
}

/** Returns rules by which the short form that a log has is counted as it is. */
function withoutSecrets(parameters: Parameters | undefined): Parameters | undefined {
  if (parameters === undefined) return undefined
  return Object.fromEntries(Object.entries(parameters).map(([name, { kind }]) => [name, { kind }]))
}

/** Shortens the secret parameters that a log of other settings has in full, so that both count alike. */
function shortenParams(params: Params, secrets: ReadonlySet<string>): Params {
  if (secrets.size === 0) return params
  const shortened = Object.entries(params).map(([name, value]) => {
    const isWhole = secrets.has(name) && !isShortSegment(value)
    return [name, isWhole ? shortenDigest(digestOf(foldCase(value))) : value] as const
  })
  return Object.fromEntries(shortened)
}
