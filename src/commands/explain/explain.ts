import type { Config } from '../../config/schema.ts'
import { createRouter, type Params, type Route, servedHosts } from '../../downstream/router.ts'
import { understand } from '../../downstream/target.ts'
import { methodNotAllowed, notFound, Refusal } from '../../errors.ts'
import type { Caller } from '../../limit/caller.ts'
import { prefixOf } from '../../limit/key.ts'
import { type ClientLimit, inForce, type Limit, quotasFor } from '../../limit/limit.ts'
import { compileParameters } from '../../limit/parameters.ts'
import { formatInstant } from '../format.ts'
import { type PassedOver, passedOver } from './passed-over.ts'
import type { Question } from './command.ts'

/** What a request gets, and why. Instants are ISO 8601 in UTC. */
export interface Explained {
  readonly at: string
  readonly request: Question & { readonly host: string }
  /** The canonical path, which is matched and forwarded; null where the request has none. */
  readonly path: string | null
  /** Why the gateway itself replies, before it authenticates; a 405 has the methods of the path. */
  readonly refusal:
    | (Pick<Refusal, 'status' | 'code' | 'message'> & { readonly allow?: readonly string[] })
    | null
  readonly route: ExplainedRoute | null
  /** The client that calls; null where the question names none. */
  readonly client: ExplainedClient | null
  /** All of them are charged, or none; the headers of admitted calls report the first live one. */
  readonly limits: readonly ExplainedLimit[]
  /** The routes before the one that takes it, or all where none does. */
  readonly passedOver: readonly PassedOver[]
}

export type ExplainedRoute = ReturnType<typeof explainRoute>
export type ExplainedClient = ReturnType<typeof explainClient>
export type ExplainedLimit = ReturnType<typeof explainLimits>[number]

/** What the question says of the caller. */
export type Asker = { readonly [Part in keyof Caller]?: Caller[Part] | undefined }

/** Follows a request through a configuration as the gateway would, at an instant (epoch milliseconds), without any I/O. */
export function explain(config: Config, question: Question, asker: Asker, nowMs: number): Explained {
  const { routes } = config
  const request = { ...question, host: question.host ?? someHost(config) }
  const client = asker.client === undefined ? null : explainClient(asker.client, config)
  const explained = { at: formatInstant(nowMs), request, path: null, route: null, client, limits: [] }
  const { serves, servesOthers } = servedHosts(routes, config.listen.hosts)
  const target = understand(request.target, [request.host], serves, servesOthers)
  if (target instanceof Refusal) return { ...explained, refusal: refused(target), passedOver: [] }

  const { method } = request
  const { path } = target
  const found = createRouter(routes)(method, target.host, target.segments)
  if (found === undefined || 'allow' in found) {
    const refusal =
      found === undefined
        ? refused(notFound())
        : { ...refused(methodNotAllowed(found.allow)), allow: found.allow }
    return { ...explained, path, refusal, passedOver: passedOver(routes, method, target) }
  }

  const { route, params } = found
  const misfit = compileParameters(route, config.parameters)(params)
  const limits = misfit === undefined ? explainLimits(route.limits, asker, params, config, nowMs) : []
  return {
    ...explained,
    path,
    refusal: misfit === undefined ? null : refused(misfit),
    route: explainRoute(route, params, config),
    limits,
    passedOver: passedOver(routes.slice(0, routes.indexOf(route)), method, target),
  }
}

/** A host for a question that names none: one that no route names, if there is one. */
function someHost({ routes }: Config): string {
  const hosts = routes.find(({ hosts }) => hosts !== undefined)?.hosts
  return hosts?.find((one) => !routes.some(({ host }) => host === one)) ?? hosts?.[0] ?? 'localhost'
}

function refused({ status, code, message }: Refusal): Pick<Refusal, 'status' | 'code' | 'message'> {
  return { status, code, message }
}

function explainRoute(route: Route, params: Params, { routes, upstreams }: Config) {
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
  }
}

/** Applies limits as the gateway does. */
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
  return quotasFor(limits, caller, params, prefixOf(store), nowMs, clientLimits).map(
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
