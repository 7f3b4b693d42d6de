import type { Config } from '../../config/schema.ts'
import { Refusal, methodNotAllowed, notFound } from '../../errors.ts'
import { compileParameters } from '../../limit/parameters.ts'
import { createRouter, type Params, type Route } from '../../downstream/router.ts'
import { parseTarget, servedHosts } from '../../downstream/target.ts'
import { instant } from '../units.ts'
import { type PassedOver, passedOver } from './passed-over.ts'
import type { Question } from './question.ts'
import { type Asker, type ExplainedLimit, explainLimits } from './quotas.ts'

/** What a request gets, and why. Instants are ISO 8601 in UTC. */
export interface Explained {
  readonly at: string
  readonly request: Question & { readonly host: string }
  /** The canonical path, which is matched and forwarded; null where the request has none. */
  readonly path: string | null
  /** Why the gateway itself answers, before it asks who calls. */
  readonly refusal: Refused | null
  readonly route: ExplainedRoute | null
  /** The client that calls; null where the question names none. */
  readonly client: ExplainedClient | null
  /** All of them are charged, or none; the first live one is what admitted callers are told of. */
  readonly limits: readonly ExplainedLimit[]
  /** The routes before the one that takes it, or all where none does. */
  readonly passedOver: readonly PassedOver[]
}

export interface Refused {
  readonly status: number
  readonly code: string
  readonly message: string
  /** The methods that the path takes, of a 405. */
  readonly allow?: readonly string[]
}

export interface ExplainedRoute {
  readonly match: string
  /** Its place in the configuration, counted from 0. */
  readonly index: number
  readonly params: Params
  readonly authenticate: Route['authenticate']
  readonly scope: readonly string[]
  /** Null where the gateway itself responds. */
  readonly upstream: string | null
  readonly origins: readonly string[]
  readonly respond: string | null
  readonly maxBody: number
  /** Milliseconds to the head of the answer; null where no upstream is asked. */
  readonly timeoutMs: number | null
}

export interface ExplainedClient {
  readonly id: string
  readonly name: string | null
  /** Is it one of `clients`? */
  readonly listed: boolean
  /** What it must do where it pushes requests; null is not checked. */
  readonly requestObjectSigningAlg: string | null
  readonly authentication: string | null
}

/** Follows a request through a configuration as the gateway would, at an instant (epoch milliseconds), asking nothing of anybody. */
export function explain(config: Config, question: Question, asker: Asker, nowMs: number): Explained {
  const request = { ...question, host: question.host ?? someHost(config) }
  const { routes } = config
  const client = asker.client === undefined ? null : explainClient(asker.client, config)
  const nothing = { at: instant(nowMs), request, path: null, refusal: null, route: null, client, limits: [] }
  const { serves, servesOthers } = servedHosts(routes, config.listen.hosts)
  const target = parseTarget(request.target, [request.host], serves, servesOthers)
  if (target instanceof Refusal) {
    return { ...nothing, refusal: refusalOf(target), passedOver: [] }
  }

  const { method } = request
  const { path } = target
  const found = createRouter(routes)(method, target.host, target.segments)
  if (found === undefined || 'allow' in found) {
    const refusal =
      found === undefined
        ? refusalOf(notFound())
        : { ...refusalOf(methodNotAllowed(found.allow)), allow: found.allow }
    return { ...nothing, path, refusal, passedOver: passedOver(routes, method, target) }
  }

  const { route, params } = found
  const misfit = compileParameters(route, config.parameters)(params)
  const index = routes.indexOf(route)
  const upstream = config.upstreams.find(({ name }) => name === route.upstream)
  return {
    ...nothing,
    path,
    refusal: misfit === undefined ? null : refusalOf(misfit),
    route: {
      match: route.match,
      index,
      params: { ...params },
      authenticate: route.authenticate,
      scope: route.scope,
      upstream: route.upstream ?? null,
      origins: upstream?.origins ?? [],
      respond: route.respond ?? null,
      maxBody: route.maxBody,
      timeoutMs: upstream === undefined ? null : (route.timeoutMs ?? upstream.timeoutMs),
    },
    limits: misfit === undefined ? explainLimits(route.limits, asker, params, config, nowMs) : [],
    passedOver: passedOver(routes.slice(0, index), method, target),
  }
}

/** Stands for a host that the question leaves open: one that no route names, where there is one. */
function someHost({ routes }: Config): string {
  const hosts = routes.find(({ hosts }) => hosts !== undefined)?.hosts
  return hosts?.find((one) => !routes.some(({ host }) => host === one)) ?? hosts?.[0] ?? 'localhost'
}

function explainClient(id: string, { clients }: Pick<Config, 'clients'>): ExplainedClient {
  const listed = clients.find(({ caller }) => caller === id)
  return {
    id,
    name: listed?.name ?? null,
    listed: listed !== undefined,
    requestObjectSigningAlg: listed?.requestObjectSigningAlg ?? null,
    authentication: listed?.authentication ?? null,
  }
}

function refusalOf({ status, code, message }: Refusal): Refused {
  return { status, code, message }
}
