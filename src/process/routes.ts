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
import { settlingOf } from '../gateway/settlement.ts'
import { encodePart, isPerClient } from '../policy/key.ts'
import { type CompiledLimit, compileLimit, oncePerCounter, proofQuota } from '../policy/apply.ts'
import type { Limit } from '../policy/limit.ts'
import type { Overrides } from '../policy/overrides.ts'
import { fieldsOf } from '../policy/conditions.ts'
import { isVariable, partReader } from '../policy/parts.ts'
import { type CompiledRoute, compileRoutes } from '../policy/routes.ts'
import { createShowPath } from '../policy/shown-path.ts'
import { wordOf } from '../policy/words.ts'
import { routeText } from '../observe/log-lines.ts'
import { type Log, throttle } from '../observe/log.ts'
import { withoutCompression } from '../upstream/request-headers.ts'
import { createResponseFields } from '../upstream/response-head.ts'
import type { Forward } from '../upstream/upstream.ts'

/** A route of the configuration, with its limits compiled. */
type ServedRoute = CompiledRoute<Config['routes'][number]>

/** Maximum unknown plans of tokens that are warned of, each once. */
const MAX_UNKNOWN_PLANS = 100
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
  const { routes, upstreams, listen, headers, limits, parameters, clients, metrics } = config
  const errorFormats = new Map(upstreams.map(({ name, errors }) => [name, errors]))
  const perClient = limits
    .filter((limit) => isPerClient(limit) && limit.counts === undefined)
    .map((limit) => compileLimit(limit, { ...config, overrides }))
  const warn = ({ name, claim }: Limit) =>
    log.warn({ limit: name, claim: claim?.name }, 'claim of a limit is invalid; default applied')
  const onBadClaim = throttle(warn, WARN_MS, ({ name }) => name, limits.length)
  const onUnknownPlan = throttle(
    (plan: string) => log.warn({ plan }, 'plan of a token is unknown; the limits of the file apply'),
    Number.POSITIVE_INFINITY,
    (plan) => plan,
    MAX_UNKNOWN_PLANS,
  )

  const { fields, askedFields } = fieldsOfUpstreams(config, onDroppedField)
  const compileCors = createCorsCompiler(headers.requestId)
  const listed = new Set(clients.map(({ caller }) => caller))
  const labelOf = (client = ''): string => (listed.has(client) ? client : OTHER_CLIENTS)
  const clientLabel = metrics.clients === 'listed' ? labelOf : undefined
  const ofLimits = new Map<readonly CompiledLimit[], LimitedParts>()
  /** Returns what the routes share that have the same compiled limits. */
  function partsOf(compiled: readonly CompiledLimit[]): LimitedParts {
    const parts = ofLimits.get(compiled) ?? limitedParts(compiled, config)
    ofLimits.set(compiled, parts)
    return parts
  }
  const shownPerClient = shownQuotaOf(perClient)
  function serve(route: ServedRoute): GatewayRoute {
    const parts = partsOf(route.compiled)
    const own = fields.get(route.upstream ?? '') ?? askedFields
    return {
      ...route,
      ...parts,
      fields: parts.settling?.readsBody === true ? withoutCompression(own) : own,
      logText: routeText(route),
      clientLabel,
      forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
      errorFormat: isGuarded(route) ? 'oauth' : (errorFormats.get(route.upstream ?? '') ?? 'problem'),
      cors: compileCors(route.cors),
      shownQuota: route.respond === undefined ? parts.shownQuota : shownPerClient,
    }
  }
  const showPath = createShowPath(routes, parameters)
  const served = compileRoutes(routes, { ...config, overrides, onBadClaim, onUnknownPlan }).map(serve)
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

/** The parts of a route that depend only on its limits and on settings of the whole file. */
type LimitedParts = Pick<GatewayRoute, 'countsByIp' | 'settling' | 'shownQuota' | 'proofQuota'>

function limitedParts(compiled: readonly CompiledLimit[], config: Config): LimitedParts {
  const limits = compiled.map(({ limit }) => limit)
  return {
    countsByIp: limits.some(({ per }) => per.some((part) => wordOf(part).from === 'connection')),
    settling: settlingOf(limits),
    shownQuota: shownQuotaOf(compiled),
    proofQuota: proofQuotaOf(limits[0], config),
  }
}

/**
 * Returns the function that applies the first live limit of a request whose parts it has. The
 * limits of a route that responds itself are those per client.
 */
function shownQuotaOf(limits: readonly CompiledLimit[]): GatewayRoute['shownQuota'] {
  const live = limits.filter(({ limit }) => !limit.shadow)
  return (caller, facts) => {
    const applied = live.map(({ apply }) => apply(caller, facts, Date.now()))
    return oncePerCounter(applied.filter((quota) => quota !== undefined && 'key' in quota))[0]
  }
}

/**
 * Returns the function that makes the quota of a proof, in the hash slot of the route's limits, so
 * that a cluster decides both at once. All replays of a proof must have the same key: they may come
 * from another address, with other header fields.
 */
function proofQuotaOf(first: Limit | undefined, config: Config): GatewayRoute['proofQuota'] {
  const { prefix, parameters } = config
  const part = first?.per[0]
  const read =
    part === undefined || isVariable(part) ? undefined : partReader(part, first!.parameters ?? parameters)
  return ({ id, windowMs }, caller, facts) =>
    proofQuota(prefix, read?.(caller, facts) ?? encodePart(caller.client!), id, windowMs)
}

/** Creates the readers of header fields: of requests to each upstream by its name, and of those that a proxy asks about. */
function fieldsOfUpstreams(
  { upstreams, listen, headers, limits, keys }: Config,
  onDroppedField: (upstream: string, field: string) => void,
) {
  const requestId = headers.requestId.toLowerCase()
  const key = keys && { field: keys.field.toLowerCase(), forward: keys.forward }
  const counted = fieldsOf(limits)
  const askedFields = createRequestFields({ requestId, key, counted, identity: [], callers: [] })
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
        createRequestFields({ requestId, key, counted: own, identity, callers, host, ownHost, onDrop }),
      ]
    }),
  )
  return { fields, askedFields }
}

/** Creates the compiler of settings of `cors`, which routes share: equal settings are compiled once. */
function createCorsCompiler(requestIdField: string) {
  const compiled = new Map<string, Cors>()
  return (settings: CorsSettings | undefined): Cors | undefined => {
    if (settings === undefined) return undefined
    const key = JSON.stringify(settings)
    const cors = compiled.get(key) ?? createCors(settings, requestIdField)
    compiled.set(key, cors)
    return cors
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
