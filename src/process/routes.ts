import { PROOF_ALGORITHMS } from '../authenticate/proof/dpop.ts'
import type { ResourceMetadata } from '../authenticate/token/resource-metadata.ts'
import { seesCertificates } from '../config/checks.ts'
import type { Config } from '../config/config.ts'
import { OTHER_CLIENTS } from '../config/route-names.ts'
import { type Cors, createCors, type CorsSettings } from '../downstream/cors.ts'
import { hostErrorFormats } from '../downstream/reply.ts'
import { createRequestFields, isCallerField } from '../downstream/request-fields.ts'
import { createRouter, isGuarded } from '../downstream/router.ts'
import { servedHosts } from '../downstream/target.ts'
import type { GatewayDeps, GatewayRoute } from '../gateway/exchange.ts'
import { decisionHeaders, draftHeaders } from '../gateway/rate-limit-fields.ts'
import { encodePart, isPerClient } from '../policy/key.ts'
import { compileLimit, oncePerCounter, proofQuota } from '../policy/apply.ts'
import type { Limit } from '../policy/limit.ts'
import type { Overrides } from '../policy/overrides.ts'
import { fieldsOf } from '../policy/conditions.ts'
import { isVariable, partReader } from '../policy/parts.ts'
import { type CompiledRoute, compileRoutes } from '../policy/routes.ts'
import { createShowPath } from '../policy/shown-path.ts'
import { wordOf } from '../policy/words.ts'
import { type Log, throttle } from '../observe/log.ts'
import { createResponseFields } from '../upstream/response-head.ts'
import type { Forward } from '../upstream/upstream.ts'

/** A route of the configuration, with its limits compiled. */
type ServedRoute = CompiledRoute<Config['routes'][number]>

/** Interval of a warning about one limit, in milliseconds. */
const WARN_MS = 60_000

const withDraftHeaders: GatewayDeps['rateLimitHeaders'] = (decision, quotas) =>
  decisionHeaders(decision) + draftHeaders(decision, quotas)

/** Connects the routes with the upstreams that serve them, and creates their router. */
export function openRoutes(
  config: Config,
  forwards: ReadonlyMap<string, Forward>,
  overrides: Overrides,
  log: Log,
  onDroppedField: (upstream: string, field: string) => void,
) {
  const { routes, upstreams, listen, headers, limits, parameters, prefix, clients, metrics } = config
  const errorFormats = new Map(upstreams.map(({ name, errors }) => [name, errors]))
  const perClient = limits
    .filter((limit) => isPerClient(limit) && limit.counts === undefined)
    .map((limit) => compileLimit(limit, { ...config, overrides }))
  const warn = ({ name, claim }: Limit) =>
    log.warn({ limit: name, claim: claim?.name }, 'claim of a limit is invalid; default applied')
  const onBadClaim = throttle(warn, WARN_MS, ({ name }) => name, limits.length)

  /** Applies the first live limit of a request whose parts it has; on `respond` routes, the first one per client. */
  function compileShown({ respond, compiled }: ServedRoute): GatewayRoute['shownQuota'] {
    const live = (respond === undefined ? compiled : perClient).filter(({ limit }) => !limit.shadow)
    return (caller, facts) => {
      const applied = live.map(({ apply }) => apply(caller, facts, Date.now()))
      return oncePerCounter(applied.filter((quota) => quota !== undefined && 'key' in quota))[0]
    }
  }

  /**
   * Compiles the quota of a proof, in the hash slot of the limits, so that a cluster decides both
   * at once. All replays of a proof must have the same key: they may come from another address,
   * with other header fields.
   */
  function compileProof({ limits: [first] }: ServedRoute): GatewayRoute['proofQuota'] {
    const read =
      first && !isVariable(first.per[0])
        ? partReader(first.per[0]!, first.parameters ?? parameters)
        : undefined
    return ({ id, windowMs }, caller, facts) =>
      proofQuota(prefix, read?.(caller, facts) ?? encodePart(caller.client!), id, windowMs)
  }

  const requestId = headers.requestId.toLowerCase()
  const counted = fieldsOf(limits)
  const askedFields = createRequestFields({ requestId, counted, identity: [], callers: [] })
  const fields = new Map(
    upstreams.map(({ name, identityHeaders, callerHeaders, host, origins }) => {
      const identity = [...identityHeaders, listen.clientCertificate].map((field) => field.toLowerCase())
      const callers = callerHeaders.map((field) => field.toLowerCase())
      const accepted = new Set([...identity, ...callers])
      const own = counted.filter((field) => !isCallerField(field) || accepted.has(field))
      const onDrop = (field: string) => onDroppedField(name, field)
      const ownHost = host ?? (new URL(origins[0]!).host || 'localhost')
      return [
        name,
        createRequestFields({ requestId, counted: own, identity, callers, host, ownHost, onDrop }),
      ]
    }),
  )

  /** Compiled settings of `cors`, by their JSON. */
  const compiledCors = new Map<string, Cors>()
  function compileCors(settings: CorsSettings | undefined): Cors | undefined {
    if (settings === undefined) return undefined
    const key = JSON.stringify(settings)
    const cors = compiledCors.get(key) ?? createCors(settings, headers.requestId)
    compiledCors.set(key, cors)
    return cors
  }

  const listed = new Set(clients.map(({ caller }) => caller))
  const labelOf = (client = ''): string => (listed.has(client) ? client : OTHER_CLIENTS)
  const clientLabel = metrics.clients === 'listed' ? labelOf : undefined
  const serve = (route: ServedRoute): GatewayRoute => ({
    ...route,
    countsByIp: route.limits.some(({ per }) => per.some((part) => wordOf(part).from === 'connection')),
    fields: fields.get(route.upstream ?? '') ?? askedFields,
    labelsText: route.labels && JSON.stringify(route.labels),
    clientLabel,
    forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
    errorFormat: isGuarded(route) ? 'oauth' : (errorFormats.get(route.upstream ?? '') ?? 'problem'),
    cors: compileCors(route.cors),
    shownQuota: compileShown(route),
    proofQuota: compileProof(route),
  })
  const showPath = createShowPath(routes, parameters)
  const served = compileRoutes(routes, { ...config, overrides, onBadClaim }).map(serve)
  return {
    match: createRouter(served, config.teams),
    ...servedHosts(routes, listen.hosts),
    resource: resourceMetadata(config),
    askedFields,
    showPath,
    hidesPath: showPath !== undefined || config.log.path === 'route',
    responseFields: createResponseFields(headers.requestId, listen.tls !== undefined),
    cors: compileCors(config.cors),
    errorFormatOf: hostErrorFormats(served),
    documentation: config.errors.documentation,
    rateLimitHeaders: headers.draft === 'none' ? decisionHeaders : withDraftHeaders,
  }
}

/** Returns the metadata of the API (RFC 9728 section 2); undefined without `tokens.resource`. */
function resourceMetadata({ resource, tokens, routes, listen }: Config): ResourceMetadata | undefined {
  if (resource === undefined) return undefined
  const checksProofs = listen.publicUrl !== undefined || listen.hosts.length > 0
  const checksCertificates = seesCertificates(listen)
  const requiresProofs = !checksCertificates && tokens.every(({ bound }) => bound === 'required')
  const scopes = [...new Set(routes.flatMap(({ scope }) => scope))].toSorted()
  // Section 1.2: an authorisation server is named by its issuer, a URL.
  const servers = tokens.map(({ issuer }) => issuer).filter((issuer) => /^https?:\/\//i.test(issuer))
  return {
    resource,
    authorization_servers: servers.length > 0 ? servers : undefined,
    bearer_methods_supported: ['header'],
    scopes_supported: scopes.length > 0 ? scopes : undefined,
    dpop_signing_alg_values_supported: checksProofs ? PROOF_ALGORITHMS : undefined,
    dpop_bound_access_tokens_required: requiresProofs ? true : undefined,
    tls_client_certificate_bound_access_tokens: checksCertificates ? true : undefined,
  }
}
