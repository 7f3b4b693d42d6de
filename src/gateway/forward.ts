import { encodeClient, passReply } from '../downstream/forward-auth.ts'
import { hasReleasedSocket } from '../downstream/listener/released.ts'
import { jsonReply, textReply } from '../downstream/reply.ts'
import { acceptsKeys } from '../downstream/router.ts'
import { teamUnavailable } from '../errors.ts'
import { NO_FACTS } from '../policy/facts.ts'
import { ipPart } from '../policy/key.ts'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { requestHeaders, UNCOMPRESSED } from '../upstream/request-headers.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { GatewayDeps, Identified, Outcome } from './exchange.ts'
import { write } from './respond.ts'

/**
 * Prefixes the IP address of a caller without a client id, as its key in the upstream's queue. A
 * lone surrogate, which no client id contains.
 */
const ANONYMOUS = '\ud800'

/** The phase `forward`: forwards the request, responds as `respond` says, or lets the request of a proxy pass. */
export function forward(deps: GatewayDeps, exchange: Identified): Outcome | Promise<Outcome> {
  const { forward: upstream, respond } = exchange.route
  if (respond === 'unavailable') return teamUnavailable()
  if (exchange.asked !== undefined) return pass(deps, exchange)
  if (upstream !== undefined) return forwardTo(upstream, deps, exchange)
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
function forwardTo(upstream: Forward, deps: GatewayDeps, exchange: Identified): Promise<Outcome> {
  const { request, response, form, target, route } = exchange
  const { responseFields, publicUrl } = deps
  const traced = deps.trace?.(exchange)
  exchange.span = traced?.span
  if (exchange.expectsContinue && form === undefined) response.writeContinue()
  exchange.forwardedAt = exchange.decidedAt ?? performance.now()
  const fields = traced?.headers ?? request.headers
  const headers = requestHeaders(fields, exchange, route.fields, responseFields.idField, publicUrl)
  const options = {
    target: target.received,
    headers: headers + (route.settling?.readsBody === true ? UNCOMPRESSED : '') + namedClient(exchange),
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
    reader: exchange.settlement,
  }
  return new Promise((resolve) => {
    upstream(response, options, (ended) => {
      exchange.forwarded = ended
      exchange.bytes = ended.bytes
      resolve(ended.outcome === 'failed' ? ended.error : undefined)
    })
  })
}

/** Names the client to the upstream of a route that accepts API keys: the upstream gets no key. */
const namedClient = ({ caller, route }: Identified): string =>
  acceptsKeys(route) ? `\r\nx-sluice-client: ${encodeClient(caller.client)}` : ''

async function showLimits(deps: GatewayDeps, exchange: Identified): Promise<Outcome> {
  const { caller, proved } = exchange
  // Concurrently, so that the caller waits for Redis once; the limit shown is one of those listed, and read once.
  const [decision, limits, rateLimit] = await Promise.all([
    deps.limiter.decide([], proved?.quota),
    deps.usage.ofCaller(caller),
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
