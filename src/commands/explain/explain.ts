import type { Config } from '../../config/schema.ts'
import { createRouter, matchRoute, METHODS, type Params, matchesHost } from '../../downstream/router.ts'
import { parseTarget, servedHosts, type Target } from '../../downstream/target.ts'
import { methodNotAllowed, notFound, Refusal } from '../../errors.ts'
import { prefixOf } from '../../limit/key.ts'
import {
  type Caller,
  type ClientLimit,
  compileLimits,
  inForce,
  type Limit,
  type LimitedRoute,
} from '../../limit/limit.ts'
import { compileParameters } from '../../limit/parameters.ts'
import { formatInstant } from '../format.ts'
import type { Question } from './command.ts'

/** What a request gets, and why. Instants are ISO 8601 in UTC. */
export type Explained = ReturnType<typeof explain>

/** What the question says of the caller. */
export type Asker = { readonly [Part in keyof Caller]?: Caller[Part] | undefined }

/** Follows a request through a configuration as the gateway would, at an instant (epoch milliseconds), without any I/O. */
export function explain(config: Config, question: Question, asker: Asker, nowMs: number) {
  const { routes, parameters } = config
  const request = { ...question, host: question.host ?? someHost(config) }
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
    at: formatInstant(nowMs),
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
    limits: taken && !refusal ? explainLimits(taken.route.limits, asker, taken.params, config, nowMs) : [],
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

function explainRoute(route: LimitedRoute, params: Params, { routes, upstreams }: Config) {
  const { match, authenticate, scope, respond, maxBody, timeoutMs } = route
  const upstream = upstreams.find(({ name }) => name === route.upstream)
  return {
    match,
    /** Position in the configuration, counted from 0. */
    index: routes.indexOf(route),
    params: { ...params },
    authenticate,
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

function explainClient(id: string, { clients }: Config) {
  const listed = clients.find(({ caller }) => caller === id)
  return {
    id,
    name: listed?.name ?? null,
    /** True if it is one of `clients`. */
    listed: listed !== undefined,
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
  nowMs: number,
) {
  const known: Readonly<Record<string, string | undefined>> = { ...params, client, user, ip }
  const caller = { client: client ?? '', user: user ?? '', ip: ip ?? '' }
  const own = clientLimits.get(client ?? '')
  return compileLimits(limits, prefixOf(store), clientLimits)(caller, params, nowMs).map(
    ({ name, limit, windowMs, shadow, key }) => {
      const configured = limits.find((one) => one.name === name)!
      const { per } = configured
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
        ...decidedBy(configured, own?.get(name), nowMs),
      }
    },
  )
}

/** Which rule decides the limit, why, and what it will be next for this caller, as far as is known. */
function decidedBy(configured: Limit, own: ClientLimit | undefined, nowMs: number) {
  const rule = inForce(configured, own, nowMs)
  const until = own?.untilAt === undefined ? undefined : formatInstant(own.untilAt)
  if (rule === own) {
    const because = `the client's own limit${until === undefined ? '' : `, until ${until}`}`
    const next =
      until === undefined ? null : { limit: inForce(configured, own, own.untilAt!).limit, from: until }
    return { decidedBy: 'client' as const, because, next }
  }
  const ended = until === undefined ? '' : `; the client's own limit ended at ${until}`
  const coming = configured.changes.find(({ fromAt }) => fromAt > nowMs)
  const next = coming === undefined ? null : { limit: coming.limit, from: formatInstant(coming.fromAt) }
  if (!('fromAt' in rule)) return { decidedBy: 'limit' as const, because: `for every client${ended}`, next }
  return { decidedBy: 'change' as const, because: `changed at ${formatInstant(rule.fromAt)}${ended}`, next }
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
