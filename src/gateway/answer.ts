import { ownCorsFields } from '../downstream/cors.ts'
import { passReply, replyForNginx } from '../downstream/forward-auth.ts'
import { hasReleasedSocket } from '../downstream/listener/released.ts'
import {
  jsonReply,
  prefersPage,
  refusalReply,
  type Reply,
  textReply,
  writeReply,
} from '../downstream/reply.ts'
import { Failure, Refusal } from '../errors.ts'
import { NO_FACTS } from '../policy/facts.ts'
import { ipPart } from '../policy/key.ts'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { requestHeaders } from '../upstream/request-headers.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Exchange, GatewayDeps, Identified, Outcome } from './exchange.ts'

/**
 * Prefixes the IP address of a caller without a client id, as its key in the upstream's queue. A
 * lone surrogate, which no client id contains.
 */
const ANONYMOUS = '\ud800'

/** Forwards the request, responds as `respond` says, or lets the request of a proxy pass. */
export function answer(deps: GatewayDeps, exchange: Identified): Outcome | Promise<Outcome> {
  if (exchange.asked !== undefined) return pass(deps, exchange)
  const { forward: upstream, respond } = exchange.route
  if (upstream !== undefined) return forward(deps, exchange, upstream)
  if (respond === 'limits') return showLimits(deps, exchange)
  if (respond === 'resource') {
    exchange.reply = jsonReply(deps.resource!)
    return undefined
  }
  exchange.reply = deps.isReady() ? textReply(200, 'ready') : textReply(503, 'not ready')
  return undefined
}

async function pass(deps: GatewayDeps, exchange: Identified): Promise<Outcome> {
  // Not at once: Node has not yet parsed the end of the request, and would close the proxy's connection.
  await new Promise<void>((resolve) => callAtIterationEnd(resolve))
  write(deps, exchange, passReply(exchange.caller.client))
  return undefined
}

/** Forwards the request and streams the response back. Returns a 502, 503 or 504 if no response was begun. */
function forward(deps: GatewayDeps, exchange: Identified, upstream: Forward): Promise<Outcome> {
  const { request, response, form, target, route } = exchange
  const { responseFields, publicUrl } = deps
  const traced = deps.trace?.(exchange)
  exchange.span = traced?.span
  if (exchange.expectsContinue && form === undefined) response.writeContinue()
  exchange.forwardedAt = exchange.decidedAt ?? performance.now()
  const fields = traced?.headers ?? request.headers
  const options = {
    target: target.received,
    headers: requestHeaders(fields, exchange, route.fields, responseFields.idField, publicUrl),
    bodyLength: form?.length ?? exchange.bodyLength,
    body: form,
    maxBody: route.maxBody,
    timeoutMs: route.timeoutMs,
    rateLimit: exchange.rateLimitFields,
    requestId: exchange.requestId,
    responseFields,
    cors: exchange.cors?.fieldsFor(request.headers.origin),
    caller: exchange.caller.client ?? ANONYMOUS + ipPart(exchange.ip),
    isHandshake: hasReleasedSocket(request),
  }
  return new Promise((resolve) => {
    upstream(response, options, (ended) => {
      exchange.forwarded = ended
      exchange.bytes = ended.bytes
      resolve(ended.outcome === 'failed' ? ended.error : undefined)
    })
  })
}

async function showLimits(deps: GatewayDeps, exchange: Identified): Promise<Outcome> {
  const { caller, proved } = exchange
  // Concurrently, so that the caller waits for Redis once; the limit shown is one of those listed, and read once.
  const [decision, limits, rateLimit] = await Promise.all([
    deps.limiter.decide([], proved?.quota),
    deps.usage.ofClient(caller.client!, caller.claims),
    limitFields(deps, exchange),
  ])
  if (proved !== undefined && decision.replayed === true) return proved.token.replayed()
  exchange.rateLimitFields = rateLimit
  exchange.reply = jsonReply(limits)
  return undefined
}

/** Returns the limit fields of a caller that was not charged; undefined if the store cannot be asked. */
export async function limitFields({ usage, rateLimitHeaders }: GatewayDeps, exchange: Identified) {
  const { caller, head, method, route } = exchange
  // Limits that count by a parameter that is not of its kind are not shown.
  const params = route.refuseParams(exchange) === undefined ? exchange.params : NO_FACTS.params
  const field = (name: string) => exchange.field(name)
  const quota = route.shownQuota(caller, { method, field, head, route, params })
  if (quota === undefined) return undefined
  const allowance = await usage.read(quota).catch(() => undefined)
  return allowance && rateLimitHeaders({ allowances: [allowance] }, [quota])
}

/** Writes the reply to a refused request, in the format of the route or host, and counts failures of the address. */
export function refuse(deps: GatewayDeps, exchange: Exchange, refusal: Refusal): void {
  const { status, reply: fixed } = refusal
  // Failed authentications, and requests that no route matches.
  const isUnmatched = exchange.route === undefined && status < 500
  const isFailure = (status === 401 && fixed === undefined) || isUnmatched
  exchange.refusal = (isFailure ? deps.failures?.count(exchange.ip) : undefined) ?? refusal
  const { requestId, route = exchange.nearest } = exchange
  const isRead = route?.authenticate === 'authorization' && prefersPage(exchange.request.headers)
  const format = isRead ? 'page' : (route?.errorFormat ?? deps.errorFormatOf(exchange.head.hosts[0]))
  try {
    write(deps, exchange, refusalReply(exchange.refusal, format, requestId, deps.documentation))
  } catch (error) {
    exchange.refusal = toRefusal(error)
    exchange.response.destroy()
  }
}

/** Writes the gateway's own response, with the limit, if any, the request id and the fields of `cors`. */
export function write({ responseFields }: GatewayDeps, exchange: Exchange, own: Reply): void {
  const { asked, cors, rateLimitFields = '', refusal, request, requestId, response } = exchange
  const isForNginx = refusal !== undefined && asked?.proxy === 'nginx'
  const transportSecurity = asked === undefined ? responseFields.transportSecurity : ''
  const fields = `${transportSecurity}${rateLimitFields}\r\n${responseFields.requestId}: ${requestId}`
  const corsFields = cors && ownCorsFields(cors.fieldsFor(request.headers.origin), own.checked)
  exchange.bytes += writeReply(response, isForNginx ? replyForNginx(own) : own, fields + (corsFields ?? ''))
}

export function toRefusal(error: unknown): Refusal {
  if (error instanceof Failure) return error.refusal
  return new Refusal('InternalServer', 'The gateway failed on this request.', { cause: error })
}

/**
 * Ends the leases of a call, later if its caller ended it while the upstream works, and refunds the
 * call to limits with `count: success` if the response failed: a status of 400 or above, or cut off
 * by the upstream or the gateway. A caller that disconnects after its request was sent gets no
 * refund: it could otherwise make any number of calls.
 */
export function endCall({ limiter }: GatewayDeps, exchange: Exchange): void {
  const { decision, quotas, status, error, incomplete, forwarded } = exchange
  if (decision?.lease !== undefined) limiter.release(quotas, decision, mayGoOn(exchange))
  // A caller that sends a bad body must not get the call back.
  // A WebSocket that was opened is a call that succeeded, however it ends.
  const isOpened = status === 101
  const isAnswered = isOpened || (status > 0 && status < 400 && (error === undefined || error.status < 500))
  const hasLeft = incomplete === 'left' && forwarded?.waitsFor === 'response'
  if (isAnswered || hasLeft || decision?.admitted !== true) return
  if (quotas.some(({ countsSuccess }) => countsSuccess)) limiter.giveBack(quotas, decision)
}

/**
 * True if the caller ended a call that the upstream may go on with: it left, or its body was bad or
 * too late. Few upstreams notice that their caller is gone; a caller that makes calls and leaves
 * could otherwise have any number in progress there.
 */
function mayGoOn({ error, incomplete, forwarded }: Exchange): boolean {
  const isByCaller = incomplete === 'left' || (error !== undefined && error.status < 500)
  return isByCaller && forwarded?.waitsFor === 'response'
}

/** Records how and when the response ended, and the path that may be shown, for log and metrics. */
export function recordEnd({ showPath }: GatewayDeps, exchange: Exchange): void {
  const { response, forwarded, refusal, decision } = exchange
  const { headersSent } = response
  // Set by the server if it ended the response.
  const cut = response.errored instanceof Failure ? response.errored.refusal : undefined
  exchange.endedAt = performance.now()
  if (showPath !== undefined && exchange.path !== undefined)
    exchange.path = showPath(exchange.path, exchange.route)
  if (refusal === undefined && forwarded !== undefined && headersSent) exchange.source = 'upstream'
  exchange.status = refusal?.status ?? (headersSent ? response.statusCode : (cut?.status ?? 0))
  exchange.error = cut ?? forwarded?.error ?? (decision?.admitted === false ? undefined : refusal)
  if (cut !== undefined || forwarded?.outcome === 'cut') exchange.incomplete = 'cut'
  // The response of a WebSocket is never finished.
  else if (!response.writableFinished && forwarded?.outcome !== 'answered') exchange.incomplete = 'left'
}
