import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Authenticate, Identity, Proved } from './authenticate/bearer.ts'
import type { Caller } from './authenticate/caller.ts'
import { requireScope } from './authenticate/scope.ts'
import { senderOf } from './authenticate/sender.ts'
import { readBody, tooLarge } from './body.ts'
import { deliver } from './deliver.ts'
import { GatewayError } from './errors.ts'
import { type Exchange, failed, openExchange } from './exchange.ts'
import type { Failures } from './failures.ts'
import type { Forward } from './forward.ts'
import { type BodyLength, bodyLength, type Head, readHead } from './headers.ts'
import type { Decision } from './limit/decision.ts'
import type { Limiter } from './limit/limiter.ts'
import type { Quota } from './limit/limit.ts'
import type { ParGuard } from './par/guard.ts'
import type { Peers } from './peer.ts'
import { type Dialect, jsonReply, refusedReply, type Reply, speak } from './reply.ts'
import type { Params, Route, Router } from './route.ts'
import { type Target, understand } from './target.ts'

/** A route with the parts that serve it. */
export interface ServedRoute extends Route {
  /** Where the requests go; undefined where the gateway itself responds. */
  readonly forward: Forward | undefined
  readonly dialect: Dialect
  /** Is one of its limits counted per user? */
  readonly needsUser: boolean
  /** The route's limits applied to a caller, now. */
  quotas(caller: Caller, params: Params): readonly Quota[]
}

/** What the gateway is made of; all of it is replaced at once by a reload. */
export interface Parts {
  readonly match: Router<ServedRoute>
  /** Is this a host that absolute-form targets may name? */
  serves(host: string): boolean
  readonly peers: Peers
  /** Turns away the addresses that fail too often; undefined where failures are not counted. */
  readonly failures: Failures | undefined
  readonly authenticate: Authenticate
  /** Checks what is pushed to the PAR endpoint; undefined where no route leads there. */
  readonly guard: ParGuard | undefined
  readonly limiter: Limiter
  /** The fields that tell a caller of a decision, as a flat list. */
  rateLimitHeaders(decision: Decision): readonly string[]
  /** What `respond: limits` tells a caller of its own limits. */
  limitsOf(caller: Caller): Promise<object>
  /** Told of every request once, when it is over. */
  observe(exchange: Exchange): void
}

/** Serves one request; never rejects. */
export type Serve = (
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue?: boolean,
) => Promise<void>

/** The life of a request: understand, match, identify, limit, forward; and the one rescue. */
export function createGateway(parts: Parts): Serve {
  return async function serve(request, response, expectsContinue = false) {
    const exchange = openExchange(request, parts.peers)
    const closed = new Promise((resolve) => response.once('close', resolve))
    let reply: Reply | undefined
    try {
      reply = await answer(parts, exchange, request, response, expectsContinue)
    } catch (failure) {
      reply = failed(exchange, rescue(failure))
    }
    if (reply !== undefined) {
      exchange.status = reply.status
      try {
        speak(response, reply)
      } catch (failure) {
        exchange.error = rescue(failure)
        response.destroy()
      }
    }
    await closed
    if (!response.writableFinished) {
      // The listener says there what it answered in place of a request that broke off.
      if (exchange.status === 0 && response.statusCode !== 200) exchange.status = response.statusCode
      else exchange.incomplete ??= 'left'
    }
    parts.observe(exchange)
  }
}

/** The gateway's own answer, or undefined where the upstream's was streamed. */
async function answer(
  parts: Parts,
  exchange: Exchange,
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue: boolean,
): Promise<Reply | undefined> {
  const head = readHead(request.rawHeaders)

  const target = understand(request.url ?? '', head.hosts, parts.serves)
  if (target instanceof GatewayError) {
    // As it came, for whoever wants to know what was refused; the query may hold secrets.
    exchange.path = (request.url ?? '').split('?', 1)[0]!
    return strange(parts, exchange, target)
  }
  exchange.path = target.path

  const found = match(parts, exchange, target)
  if (found instanceof GatewayError) return strange(parts, exchange, found)
  const { route, params } = found
  exchange.route = route
  exchange.dialect = route.dialect

  const body = bodyOf(request, route)
  if (body instanceof GatewayError) return failed(exchange, body)

  if (route.authenticate !== 'none') {
    const refusal = parts.failures?.refusal(exchange.ip)
    if (refusal !== undefined) return failed(exchange, refusal)
  }

  if (route.authenticate === 'par') {
    if (expectsContinue) response.writeContinue()
    return push(parts, exchange, request, response, { target, route, head })
  }

  const identified = identify(parts, exchange, request, { route, target, head })
  const known = identified instanceof Promise ? await identified : identified
  if (known instanceof GatewayError) return unproven(parts, exchange, known)
  const { caller, proof } = known
  const quotas = route.quotas(caller, params)
  // A refusal from memory asks the store nothing, so that it leaves the proof unused, too.
  const remembered = proof && parts.limiter.recall(quotas)
  if (proof !== undefined && remembered === undefined) {
    const refusal = await proof.use()
    if (refusal !== undefined) return unproven(parts, exchange, refusal)
  }
  exchange.caller = caller

  let rateLimit: readonly string[] | undefined
  if (route.limits.length > 0) {
    exchange.limitAt = performance.now()
    const decision = remembered ?? (await parts.limiter.decide(quotas))
    exchange.decision = decision
    exchange.decidedAt = performance.now()
    rateLimit = parts.rateLimitHeaders(decision)
    if (!decision.admitted) return refusedReply(decision, rateLimit, exchange.requestId)
  }

  if (route.forward === undefined) return jsonReply(await parts.limitsOf(caller))
  if (expectsContinue) response.writeContinue()
  return deliver(exchange, request, response, {
    peers: parts.peers,
    target,
    route,
    to: route.forward,
    body,
    rateLimit,
  })
}

/** The life of a pushed authorisation request: read whole, checked, and forwarded once, byte for byte. */
async function push(
  parts: Parts,
  exchange: Exchange,
  request: IncomingMessage,
  response: ServerResponse,
  { target, route, head }: { readonly target: Target; readonly route: ServedRoute; readonly head: Head },
): Promise<Reply | undefined> {
  const pushed = await readBody(request, route.maxBody)
  // Nobody is left to answer.
  if (pushed === undefined) return undefined
  if (pushed instanceof GatewayError) return failed(exchange, pushed)
  const refusal = await parts.guard!.check({
    method: exchange.method,
    contentType: request.headers['content-type'],
    contentEncoding: request.headers['content-encoding'],
    authorization: head.authorization,
    body: pushed,
  })
  if (refusal instanceof GatewayError) return unproven(parts, exchange, refusal)
  // Who pushed it is the upstream's to say: what the guard knows may be no more than a claim.
  exchange.caller = { ip: exchange.ip }
  const { peers } = parts
  const body = pushed.length
  return deliver(exchange, request, response, { peers, target, route, to: route.forward!, body, pushed })
}

function match(
  parts: Parts,
  exchange: Exchange,
  target: Target,
): { readonly route: ServedRoute; readonly params: Params } | GatewayError {
  const found = parts.match(exchange.method, target.host, target.segments)
  if (found === undefined) return new GatewayError('NotFound', 'Nothing is served at this path.')
  if (!('allow' in found)) return found
  if (found.nearest !== undefined) exchange.dialect = found.nearest.dialect
  const allow = found.allow.join(', ')
  return new GatewayError('MethodNotAllowed', `This path takes ${allow}.`, { headers: { Allow: allow } })
}

function bodyOf(request: IncomingMessage, route: ServedRoute): BodyLength | GatewayError {
  const length = bodyLength(request.method ?? '', request.httpVersion, request.headers)
  return typeof length === 'number' && length > route.maxBody ? tooLarge(route.maxBody) : length
}

/** A caller, and its proof of possession where it came with one: to be used before anything is done for it. */
interface Identified {
  readonly caller: Caller
  readonly proof?: Proved | undefined
}

/** A promise only where a token needs more than memory. */
function identify(
  parts: Parts,
  exchange: Exchange,
  request: IncomingMessage,
  { route, target, head }: { readonly route: ServedRoute; readonly target: Target; readonly head: Head },
): Identified | GatewayError | Promise<Identified | GatewayError> {
  const { ip } = exchange
  if (route.authenticate === 'none') return { caller: { ip } }
  const identity = parts.authenticate(head.authorization, () =>
    senderOf(request, { path: target.path, trusted: parts.peers.trusts(exchange.peer) }),
  )
  return identity instanceof Promise
    ? identity.then((known) => callerOf(known, route, ip))
    : callerOf(identity, route, ip)
}

function callerOf(
  known: Identity | Proved | GatewayError,
  route: ServedRoute,
  ip: string,
): Identified | GatewayError {
  if (known instanceof GatewayError) return known
  const proof = 'use' in known ? known : undefined
  const identity = 'use' in known ? known.identity : known
  const lacking = requireScope(identity, route.scope)
  if (lacking !== undefined) return lacking
  if (route.needsUser && identity.user === undefined) {
    return new GatewayError(
      'Forbidden',
      'The access token names no user, and this path is limited for each user.',
    )
  }
  const caller = { client: identity.client, ...(identity.user !== undefined && { user: identity.user }), ip }
  return { caller, proof }
}

/** A request that no route takes: a failure of its address, and refused as one too many where there were enough before. */
function strange({ failures }: Parts, exchange: Exchange, error: GatewayError): Reply {
  const refusal = failures?.refusal(exchange.ip)
  if (refusal === undefined) failures?.count(exchange.ip)
  return failed(exchange, refusal ?? error)
}

/** A caller who could not prove who it is: a failure of its address. */
function unproven({ failures }: Parts, exchange: Exchange, error: GatewayError): Reply {
  if (error.status === 401) failures?.count(exchange.ip)
  return failed(exchange, error)
}

function rescue(failure: unknown): GatewayError {
  if (failure instanceof GatewayError) return failure
  return new GatewayError('InternalServer', 'The gateway failed to handle this request.', { cause: failure })
}
