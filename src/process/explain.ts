import { METHODS as KNOWN_METHODS } from 'node:http'
import { isIP } from 'node:net'
import type { RequestLine } from '../admin/limits.ts'
import type { Config } from '../config/schema.ts'
import { createRouter, matchRoute, METHODS, type Params, matchesHost } from '../downstream/router.ts'
import { parseTarget, servedHosts, type Target } from '../downstream/target.ts'
import { InvalidQuestion, methodNotAllowed, notFound, Refusal } from '../errors.ts'
import { comingOf, decidedBy } from '../limit/in-force.ts'
import { instant, instantMs } from '../limit/instant.ts'
import { prefixOf } from '../limit/key.ts'
import { type Caller, compileLimits, type Limit, type LimitedRoute } from '../limit/limit.ts'
import type { Overrides } from '../limit/overrides.ts'
import { compileParameters } from '../limit/parameters.ts'

export type { RequestLine as Question }

/** What a request gets, and why. Instants are ISO 8601 in UTC. */
export type Explained = ReturnType<typeof explain>

type Asker = { readonly [Part in keyof Caller]?: Caller[Part] | undefined }

const WORDS = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/
const URL = /^https?:\/\/([^/?#]*)(.*)$/i

/** Parses what a question asks for; throws an InvalidQuestion. */
export function parseQuestion({ request, host, client, user, ip, at }: RequestLine) {
  const [, word = 'GET', where = ''] = WORDS.exec(request.trim()) ?? []
  const method = word.toUpperCase()
  if (!KNOWN_METHODS.includes(method))
    throw new InvalidQuestion(`"${word}" is no method of HTTP that the gateway reads: it answers 400 to it.`)
  const slash = where.indexOf('/')
  const [, named = where.slice(0, slash), target = where.slice(slash)] = URL.exec(where) ?? []
  if (slash === -1)
    throw new InvalidQuestion('Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".')
  if (named !== '' && host !== undefined && host.toLowerCase() !== named.toLowerCase())
    throw new InvalidQuestion(`The request is to "${named}", and the host given is "${host}".`)
  if (client === '' || user === '')
    throw new InvalidQuestion(`Which ${client === '' ? 'client' : 'user'}? Give its id.`)
  if (ip !== undefined && isIP(ip) === 0)
    throw new InvalidQuestion('The address must be one such as 192.0.2.7 or 2001:db8::7.')
  const atMs = at === undefined ? undefined : instantMs(at)
  if (Number.isNaN(atMs))
    throw new InvalidQuestion('The instant must be ISO 8601 with its offset, such as 2027-01-31T00:00:00Z.')
  const path = target.startsWith('/') ? target : `/${target}`
  return { request: { method, host: named || host, target: path }, asker: { client, user, ip }, atMs }
}

/** Follows a request through a configuration as the gateway would, now or at the instant that the question names, without any I/O. */
export function explain(config: Config, question: RequestLine, overrides: Overrides = new Map()) {
  const { asker, atMs = Date.now(), ...asked } = parseQuestion(question)
  const { routes, parameters } = config
  const request = { ...asked.request, host: asked.request.host ?? someHost(config) }
  const { method } = request
  const { serves, servesOthers } = servedHosts(routes, config.listen.hosts)
  const parsed = parseTarget(request.target, [request.host], serves, servesOthers)
  const target = parsed instanceof Refusal ? undefined : parsed
  const found = target && createRouter(routes)(method, target.host, target.segments)
  const taken = found && 'route' in found ? found : undefined
  const allow = found && 'allow' in found ? found.allow : undefined
  const refusal =
    parsed instanceof Refusal
      ? parsed
      : taken
        ? compileParameters(taken.route, parameters)(taken.params)
        : allow
          ? methodNotAllowed(allow)
          : notFound()
  return {
    at: instant(atMs),
    request,
    /** The canonical path, which is matched and forwarded; null where the request has none. */
    path: target?.path ?? null,
    /** Why the gateway itself replies, before it authenticates; a 405 has the methods of the path. */
    refusal: refusal
      ? { status: refusal.status, code: refusal.code, message: refusal.message, ...(allow && { allow }) }
      : null,
    route: taken ? explainRoute(taken.route, taken.params, config) : null,
    /** The client that calls; null where the question names none. */
    client: asker.client === undefined ? null : explainClient(asker.client, config),
    /** All of them are charged, or none; the headers of admitted calls report the first live one. */
    limits:
      taken && !refusal
        ? explainLimits(taken.route.limits, asker, taken.params, config, overrides, atMs)
        : [],
    /** The routes before the one that takes it, or all where none does. */
    passedOver: target
      ? routes.slice(0, taken && routes.indexOf(taken.route)).map((route) => ({
          match: route.match,
          because: reasonOf(route, method, target),
        }))
      : [],
  }
}

/** A host for a question that names none: one that no route names, if there is one. */
function someHost({ routes }: Config): string {
  const hosts = routes.find(({ hosts }) => hosts !== undefined)?.hosts
  return hosts?.find((one) => !routes.some(({ host }) => host === one)) ?? hosts?.[0] ?? 'localhost'
}

function explainRoute(route: LimitedRoute, params: Params, { routes, upstreams, tokens, par }: Config) {
  const { match, authenticate, scope, respond, maxBody, timeoutMs } = route
  const upstream = upstreams.find(({ name }) => name === route.upstream)
  return {
    match,
    /** Position in the configuration, counted from 0. */
    index: routes.indexOf(route),
    params: { ...params },
    authenticate,
    /** Whose tokens, or request objects, are accepted. */
    issuers: (authenticate === 'bearer' ? tokens : authenticate === 'par' && par ? [par] : []).map(
      ({ issuer }) => issuer,
    ),
    scope,
    /** Null where the gateway itself responds. */
    upstream: upstream?.name ?? null,
    origins: upstream?.origins ?? [],
    respond: respond ?? null,
    maxBody,
    /** Milliseconds to the head of the response; null without an upstream. */
    timeoutMs: upstream === undefined ? null : (timeoutMs ?? upstream.timeoutMs),
  }
}

function explainClient(id: string, { clients, par }: Config) {
  const listed = clients.find(({ caller }) => caller === id)
  return {
    id,
    name: listed?.name ?? null,
    /** True if it is one of `clients`. */
    listed: listed !== undefined,
    /** True if the PAR endpoint refuses clients that are not. */
    mustBeListed: par?.unknownClients === 'refuse',
    /** What is required where it pushes requests; null is not checked. */
    requestObjectSigningAlg: listed?.requestObjectSigningAlg ?? null,
    authentication: listed?.authentication ?? null,
    /** `required` if the authorisation endpoint accepts only its pushed requests. */
    pushed: listed?.pushed ?? null,
  }
}

function explainLimits(
  limits: readonly Limit[],
  { client, user, ip }: Asker,
  params: Params,
  { clientLimits, store }: Config,
  overrides: Overrides,
  nowMs: number,
) {
  const known: Readonly<Record<string, string | undefined>> = { ...params, client, user, ip }
  const caller = { client: client ?? '', user: user ?? '', ip: ip ?? '' }
  const own = clientLimits.get(client ?? '')
  const set = overrides.get(client ?? '')
  return compileLimits(
    limits,
    prefixOf(store),
    clientLimits,
    overrides,
  )(caller, params, nowMs).map(({ name, limit, windowMs, shadow, key }) => {
    const configured = limits.find((one) => one.name === name)!
    const { per } = configured
    const rules = { limit: configured, own: own?.get(name), set: set?.get(name) }
    const lacking = per.filter((part) => known[part] === undefined)
    return {
      name,
      limit,
      windowMs,
      shadow,
      per,
      /** The key that is counted; null while a part of it is not known. */
      key: lacking.length > 0 ? null : key,
      /** The parts of the key that the question does not name. */
      lacking,
      ...decidedBy(rules, nowMs),
      next: comingOf(rules, nowMs)[0] ?? null,
      /** Calls that are counted now; null where that was not asked. */
      used: null as number | null,
    }
  })
}

function reasonOf(route: LimitedRoute, method: string, { host, segments }: Target): string {
  const found = matchRoute([route], method, host, segments)
  if (found === undefined)
    return matchesHost(route, host) ? 'takes another path' : `takes another host than ${host}`
  if ('allow' in found) return `takes ${found.allow.join(', ')}, not ${method}`
  // What the router refuses although a route would take it.
  return METHODS.has(method)
    ? 'takes it, but the path belongs to a route with "authenticate: par" or "authorization"'
    : `takes any method, but ${method} is none that the gateway takes`
}
