import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Authenticate, Identity } from './authenticate/bearer.ts'
import type { Caller } from './authenticate/caller.ts'
import { certificateField } from './authenticate/certificate.ts'
import { requireScope } from './authenticate/scope.ts'
import { senderOf } from './authenticate/sender.ts'
import { readBody, tooLarge } from './body.ts'
import { GatewayError } from './errors.ts'
import type { Forward } from './forward.ts'
import { type BodyLength, bodyLength, type Head, readHead, requestHeaders } from './headers.ts'
import type { Decision } from './limit/decision.ts'
import type { Limiter } from './limit/limiter.ts'
import type { Quota } from './limit/limit.ts'
import type { ParGuard } from './par/guard.ts'
import { type Peers, plainAddress } from './peer.ts'
import { type Dialect, errorReply, jsonReply, refusedReply, type Reply, speak } from './reply.ts'
import { matchRoute, METHODS, type Params, type Route, takesPath } from './route.ts'
import { parseHost, type Target, understand } from './target.ts'

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
  readonly routes: readonly ServedRoute[]
  /** Is this a host that absolute-form targets may name? */
  serves(host: string): boolean
  readonly peers: Peers
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

/** One request and what became of it, as log and metrics see it. Times are `performance.now()` milliseconds. */
export interface Exchange {
  readonly requestId: string
  readonly method: string
  readonly startedAt: number
  /** The address of the socket's peer, and of the caller as far as trusted proxies tell. */
  readonly peer: string
  readonly ip: string
  path?: string
  route?: ServedRoute
  /** In whose words errors are told. */
  dialect: Dialect
  caller?: Caller
  decision?: Decision
  /** When the limiter was asked, and when it had decided. */
  limitAt?: number
  decidedAt?: number
  askedAt?: number
  headAt?: number
  source: 'gateway' | 'upstream'
  status: number
  /** Did the caller leave, or was the answer cut, before it was whole? */
  incomplete?: 'left' | 'cut'
  error?: GatewayError
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
    const peer = plainAddress(request.socket.remoteAddress ?? '')
    const exchange: Exchange = {
      requestId: requestIdOf(request),
      method: request.method ?? '',
      startedAt: performance.now(),
      peer,
      ip: parts.peers.caller(peer, request.headers['x-forwarded-for'] as string | undefined),
      dialect: 'problem',
      source: 'gateway',
      status: 0,
    }
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
    return failed(exchange, target)
  }
  exchange.path = target.path

  const found = match(parts, exchange, target)
  if (found instanceof GatewayError) return failed(exchange, found)
  const { route, params } = found
  exchange.route = route
  exchange.dialect = route.dialect

  const body = bodyOf(request, route)
  if (body instanceof GatewayError) return failed(exchange, body)

  if (route.authenticate === 'par') {
    if (expectsContinue) response.writeContinue()
    return push(parts, exchange, request, response, { target, route, head })
  }

  const identified = identify(parts, exchange, request, { route, target, head })
  const caller = identified instanceof Promise ? await identified : identified
  if (caller instanceof GatewayError) return failed(exchange, caller)
  exchange.caller = caller

  let rateLimit: readonly string[] | undefined
  if (route.limits.length > 0) {
    exchange.limitAt = performance.now()
    const decision = await parts.limiter.decide(route.quotas(caller, params))
    exchange.decision = decision
    exchange.decidedAt = performance.now()
    rateLimit = parts.rateLimitHeaders(decision)
    if (!decision.admitted) return refusedReply(decision, rateLimit, exchange.requestId)
  }

  if (route.forward === undefined) return jsonReply(await parts.limitsOf(caller))
  if (expectsContinue) response.writeContinue()
  return forward(parts, exchange, request, response, { target, route, to: route.forward, body, rateLimit })
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
  if (refusal instanceof GatewayError) return failed(exchange, refusal)
  // Who pushed it is the upstream's to say: what the guard knows may be no more than a claim.
  exchange.caller = { ip: exchange.ip }
  return forward(parts, exchange, request, response, {
    target,
    route,
    to: route.forward!,
    body: pushed.length,
    pushed,
    rateLimit: undefined,
  })
}

function match(
  parts: Parts,
  exchange: Exchange,
  target: Target,
): { readonly route: ServedRoute; readonly params: Params } | GatewayError {
  const guarded = parts.routes.find(
    (route) => route.authenticate === 'par' && takesPath(route, target.host, target.segments),
  )
  // Nothing but what the guard checks reaches the PAR endpoint, whatever other routes would let through.
  if (guarded !== undefined && exchange.method !== 'POST') {
    exchange.dialect = guarded.dialect
    return methodNotAllowed(['POST'])
  }
  if (!METHODS.has(exchange.method)) return methodNotAllowed([...METHODS])
  const found = matchRoute(parts.routes, exchange.method, target.host, target.segments)
  if (found === undefined) return new GatewayError('NotFound', 'Nothing is served at this path.')
  if (!('allow' in found)) return found
  exchange.dialect = found.nearest.dialect
  return methodNotAllowed(found.allow)
}

function methodNotAllowed(allow: readonly string[]): GatewayError {
  return new GatewayError('MethodNotAllowed', `This path takes ${allow.join(', ')}.`, {
    headers: { Allow: allow.join(', ') },
  })
}

function bodyOf(request: IncomingMessage, route: ServedRoute): BodyLength | GatewayError {
  const length = bodyLength(request.method ?? '', request.httpVersion, request.headers)
  if (typeof length === 'number' && length > route.maxBody) {
    return tooLarge(route.maxBody)
  }
  return length
}

/** A promise only where a token needs more than memory. */
function identify(
  parts: Parts,
  exchange: Exchange,
  request: IncomingMessage,
  { route, target, head }: { readonly route: ServedRoute; readonly target: Target; readonly head: Head },
): Caller | GatewayError | Promise<Caller | GatewayError> {
  const { ip } = exchange
  if (route.authenticate === 'none') return { ip }
  const identity = parts.authenticate(head.authorization, () =>
    senderOf(request, { path: target.path, trusted: parts.peers.trusts(exchange.peer) }),
  )
  return identity instanceof Promise
    ? identity.then((known) => callerOf(known, route, ip))
    : callerOf(identity, route, ip)
}

function callerOf(identity: Identity | GatewayError, route: ServedRoute, ip: string): Caller | GatewayError {
  if (identity instanceof GatewayError) return identity
  const lacking = requireScope(identity, route.scope)
  if (lacking !== undefined) return lacking
  if (route.needsUser && identity.user === undefined) {
    return new GatewayError(
      'Forbidden',
      'The access token names no user, and this path is limited for each user.',
    )
  }
  return { client: identity.client, ...(identity.user !== undefined && { user: identity.user }), ip }
}

/** What the earlier stages found out for the last one. */
interface Understood {
  readonly target: Target
  readonly route: ServedRoute
  readonly to: Forward
  readonly body: BodyLength
  /** The body, where it was read. */
  readonly pushed?: Buffer
  readonly rateLimit: readonly string[] | undefined
}

async function forward(
  parts: Parts,
  exchange: Exchange,
  request: IncomingMessage,
  response: ServerResponse,
  { target, route, to, body, pushed, rateLimit }: Understood,
): Promise<Reply | undefined> {
  const proto = 'encrypted' in request.socket ? 'https' : 'http'
  const host = request.headers.host!
  exchange.askedAt = performance.now()
  const headers = requestHeaders(request.headers, {
    peer: exchange.peer,
    proto,
    host,
    port: parseHost(host)?.port || (proto === 'https' ? '443' : '80'),
    requestId: exchange.requestId,
    clientCert: proto === 'https' ? certificateField(request.socket) : undefined,
    trusted: parts.peers.trusts(exchange.peer),
  })
  if (pushed !== undefined) headers['content-length'] = String(pushed.length)
  const forwarded = await to(request, response, {
    target: target.path + target.query,
    headers,
    bodyLength: body,
    body: pushed,
    maxBody: route.maxBody,
    timeoutMs: route.timeoutMs,
    rateLimit,
  })
  if (forwarded.headAt !== undefined) exchange.headAt = forwarded.headAt
  if (response.headersSent) {
    exchange.source = 'upstream'
    exchange.status = response.statusCode
  }
  if (forwarded.error) exchange.error = forwarded.error
  if (forwarded.outcome === 'cut') exchange.incomplete = 'cut'
  return forwarded.outcome === 'failed' ? failed(exchange, forwarded.error!, rateLimit) : undefined
}

function failed(exchange: Exchange, error: GatewayError, rateLimit?: readonly string[]): Reply {
  exchange.error = error
  return errorReply(error, exchange.dialect, exchange.requestId, rateLimit)
}

function rescue(failure: unknown): GatewayError {
  if (failure instanceof GatewayError) return failure
  return new GatewayError('InternalServer', 'The gateway failed to handle this request.', { cause: failure })
}

const REQUEST_ID = /^[A-Za-z0-9._~+/=:@-]{1,128}$/

/** The caller's own `X-Request-Id` where it is well formed, else a new one. */
function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID()
}
