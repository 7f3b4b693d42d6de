import type { IncomingMessage, ServerResponse } from 'node:http'
import { tooLarge } from '../downstream/body.ts'
import { deliver } from './forward.ts'
import { Failure, Refusal, methodNotAllowed, notFound } from '../errors.ts'
import { type Exchange, failed, openExchange } from './exchange.ts'
import { bodyLength, readHead } from '../downstream/head.ts'
import { identify } from './identify.ts'
import type { Quota } from '../limit/limit.ts'
import type { Parts, ServedRoute } from './deps.ts'
import { push } from './par.ts'
import type { Serve } from '../downstream/pipelining.ts'
import { jsonReply, refusedReply, type Reply, speak } from '../downstream/reply.ts'
import type { Params } from '../downstream/router.ts'
import { plainTarget, type Target, parseTarget } from '../downstream/target.ts'

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
      const refusal = isFailure(exchange, reply) ? parts.failures?.count(exchange.ip) : undefined
      if (refusal !== undefined) reply = failed(exchange, refusal)
      exchange.status = reply.status
      try {
        speak(response, reply)
      } catch (failure) {
        exchange.error = rescue(failure)
        response.destroy()
      }
    }
    await closed
    if (response.errored instanceof Failure) {
      // The listener cut it off, and says why.
      exchange.error = response.errored.refusal
      exchange.incomplete = 'cut'
      if (exchange.status === 0) exchange.status = exchange.error.status
    } else if (!response.writableFinished) exchange.incomplete ??= 'left'
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
  const length = bodyLength(request.method ?? '', request.httpVersion, request.headers)
  // Whatever it is refused for: where it ends, others may see the next one begin.
  if (length instanceof Refusal) response.shouldKeepAlive = false

  const target = parseTarget(request.url ?? '', head.hosts, parts.serves, parts.servesOthers)
  if (target instanceof Refusal) {
    // As it came, for whoever wants to know what was refused.
    exchange.path = plainTarget(request.url ?? '')
    exchange.dialect = parts.dialectOf(head.hosts[0])
    return failed(exchange, target)
  }
  exchange.host = target.host
  exchange.path = target.path

  const found = match(parts, exchange, target)
  if (found instanceof Refusal) return failed(exchange, found)
  const { route, params } = found
  exchange.route = route
  exchange.dialect = route.dialect

  const misfit = route.refuseParams(params)
  if (misfit !== undefined) return failed(exchange, misfit)

  const body = typeof length === 'number' && length > route.maxBody ? tooLarge(route.maxBody) : length
  if (body instanceof Refusal) return failed(exchange, body)

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
  if (known instanceof Refusal) return failed(exchange, known)
  const { caller, bound, forbidden } = known
  const quotas = forbidden === undefined ? route.quotas(caller, params) : []
  // What is refused from memory costs no signature, and leaves the proof unused.
  const remembered = bound && parts.limiter.recall(quotas)
  let proof: Quota | undefined
  if (bound !== undefined && remembered === undefined) {
    const proved = await bound.prove()
    if (proved instanceof Refusal) return failed(exchange, proved)
    proof = route.proofQuota(proved, caller, quotas)
  }
  exchange.caller = caller
  if (forbidden !== undefined) return failed(exchange, forbidden)

  if (route.forward === undefined) {
    // At once, so that Redis is waited for once.
    const [decision, limits] = await Promise.all([parts.limiter.decide([], proof), parts.limitsOf(caller)])
    return decision.replayed === true ? failed(exchange, bound!.replayed()) : jsonReply(limits)
  }

  let rateLimit: readonly string[] | undefined
  if (quotas.length > 0 || proof !== undefined) {
    exchange.limitAt = performance.now()
    const decision = remembered ?? (await parts.limiter.decide(quotas, proof))
    if (decision.replayed === true) return failed(exchange, bound!.replayed())
    exchange.decidedAt = performance.now()
    if (quotas.length > 0) {
      exchange.decision = decision
      rateLimit = parts.rateLimitHeaders(decision, quotas)
      if (!decision.admitted) return refusedReply(decision, rateLimit, exchange.requestId)
    }
  }

  if (expectsContinue) response.writeContinue()
  return deliver(exchange, request, response, {
    target,
    route,
    to: route.forward,
    body,
    rateLimit,
  })
}

function match(
  parts: Parts,
  exchange: Exchange,
  target: Target,
): { readonly route: ServedRoute; readonly params: Params } | Refusal {
  const found = parts.match(exchange.method, target.host, target.segments)
  if (found !== undefined && !('allow' in found)) return found
  exchange.dialect = found?.nearest?.dialect ?? parts.dialectOf(target.host)
  return found === undefined ? notFound() : methodNotAllowed(found.allow)
}

/** Is this one of those that `failures` counts: no route takes it, or its caller could not prove who it is? */
function isFailure({ route }: Exchange, { status }: Reply): boolean {
  return status === 401 || (route === undefined && status < 500 && status !== 429)
}

function rescue(failure: unknown): Refusal {
  if (failure instanceof Failure) return failure.refusal
  return new Refusal('InternalServer', 'The gateway failed to handle this request.', { cause: failure })
}
