import type { Config } from '../../config/config.ts'
import { createRouter, type Match, type Params } from '../../downstream/router.ts'
import { decodeSegment, foldCase, segmentsOf } from '../../downstream/target.ts'
import { Refusal } from '../../errors.ts'
import { NO_FACTS } from '../../policy/facts.ts'
import { type Parameters, secretParts } from '../../policy/parameter-kinds.ts'
import { compileRoutes } from '../../policy/routes.ts'
import { digestOf, isShortForm, shortenDigest } from '../../policy/secret-values.ts'
import { wordOf } from '../../policy/words.ts'
import type { LoggedCall } from './logs.ts'
import { unloggedBy } from './report.ts'

/** True for a segment of a logged path that the log has only in its short form. */
const isShortSegment = (segment: string): boolean => isShortForm(decodeSegment(segment))

/**
 * Creates the function that returns the quotas of a logged call, or why it has none. Secret
 * parameters are counted in the short form that the log has, of which two values may have the same.
 */
export function createCharges(config: Config) {
  // A log may not contain the host of a call.
  const logged = config.routes.map((route) => ({
    ...route,
    hosts: undefined,
    parameters: withoutSecrets(route.parameters),
    limits: route.limits
      .filter((limit) => unloggedBy(limit) === undefined)
      .map((limit) => ({ ...limit, parameters: withoutSecrets(limit.parameters) })),
  }))
  const secrets = secretParts(config.parameters)
  const routes = compileRoutes(logged, { ...config, parameters: withoutSecrets(config.parameters)! })
  const owners = config.teams.map((team) => ({ ...team, owned: { ...team.owned, hosts: undefined } }))
  const match = createRouter(routes, owners)
  const byPattern = new Map(routes.map((route) => [route.match, { route, params: NO_FACTS.params }]))

  /**
   * Finds the route of a call. It is the recorded one without the path or the host, and if the path
   * has short forms in which another route could be named.
   */
  function findRoute({
    method,
    host,
    path,
    route: recorded = '',
  }: LoggedCall): Match<(typeof routes)[number]> {
    if (path === undefined || host === undefined) return byPattern.get(recorded)
    const segments = segmentsOf(path)
    const found = match(method, host, segments)
    const { route, params } =
      found !== undefined && 'route' in found ? found : { route: undefined, params: NO_FACTS.params }
    const known = Object.keys(params).filter((name) => secrets.has(name) && isShortSegment(params[name]!))
    const isSure = segments.filter(isShortSegment).length === known.length
    return isSure || route?.match === recorded ? found : byPattern.get(recorded)
  }

  return (call: LoggedCall, nowMs: number) => {
    const { method, client, ip } = call
    const found = findRoute(call)
    if (found === undefined || 'allow' in found) return 'unmatched'
    const { route } = found
    if (route.limits.length === 0) return 'unlimited'
    // The recorded gateway did not authenticate a call that this one would.
    if (route.authenticate === 'bearer' && client === undefined) return 'lacking'
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
      return 'unmatched'
    const caller = { client, ip: ip ?? '' }
    const quotas = route.quotas(caller, { ...NO_FACTS, params, method, route }, nowMs)
    return quotas instanceof Refusal ? 'lacking' : quotas
  }
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
