import { readPlan } from '../../authenticate/token/kept-claims.ts'
import type { Config } from '../../config/config.ts'
import type { CorsSettings } from '../../downstream/cors.ts'
import { acceptsKeys, acceptsTokens } from '../../downstream/router.ts'
import type { Caller } from '../../policy/facts.ts'
import { planOf } from '../../policy/plans.ts'
import type { CompiledRoute } from '../../policy/routes.ts'
import type { Explained } from './explained.ts'

/** A route of the configuration, with its limits compiled. */
export type MatchedRoute = CompiledRoute<Config['routes'][number]>

/** Adds the plan that the claims of a caller name, by the first issuer whose tokens may name one. */
export function withPlan(caller: Caller, { tokens }: Pick<Config, 'tokens'>): Caller {
  const claim = tokens.find(({ planClaim }) => planClaim !== undefined)?.planClaim
  return claim === undefined ? caller : { ...caller, plan: readPlan(caller.claims?.[claim]) }
}

/** Explains how a route authenticates its callers, and who answers. */
export function explainRoute(route: MatchedRoute, config: Config) {
  const { match, authenticate, scope, respond, maxBody } = route
  const { tokens, par } = config
  const upstream = config.upstreams.find(({ name }) => name === route.upstream)
  const trust = acceptsTokens(route) ? tokens : par && authenticate === 'par' ? [par] : []
  return {
    match,
    authenticate,
    issuers: trust.map(({ issuer }) => issuer),
    keyField: acceptsKeys(route) ? config.keys!.field : null,
    scope,
    upstream: upstream?.name ?? null,
    name: route.name ?? null,
    labels: route.labels ?? null,
    origins: upstream?.origins ?? [],
    respond: respond ?? null,
    maxBody,
    ...(route.team !== undefined && { team: route.team }),
    timeoutMs: upstream === undefined ? null : (route.timeoutMs ?? upstream.timeoutMs),
  }
}

/** Explains which pages of other origins may read the response. */
export function explainCors(cors: CorsSettings | undefined, origin: string | undefined): Explained['cors'] {
  if (cors === undefined) return null
  const isAllowed = origin !== undefined && (cors.origins.includes('*') || cors.origins.includes(origin))
  return { ...cors, allowed: origin === undefined ? null : isAllowed }
}

/** Explains what the files say of a client. */
export function explainClient(caller: Caller, { apiKeys, clients, keys, par, plans }: Config) {
  const { client: id = '' } = caller
  const listed = clients.find(({ caller }) => caller === id)
  return {
    id,
    name: listed?.name ?? null,
    listed: listed !== undefined,
    plan: planOf(plans, caller) ?? null,
    keys: keys === undefined ? null : apiKeys.filter(({ client }) => client === id).length,
    mustBeListed: par?.unknownClients === 'refuse',
    requestObjectSigningAlg: listed?.requestObjectSigningAlg ?? null,
    authentication: listed?.authentication ?? null,
    pushed: listed?.pushed ?? null,
  }
}
