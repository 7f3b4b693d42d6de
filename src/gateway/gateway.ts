import { bodyLength, readHead } from '../downstream/body.ts'
import type { Serve } from '../downstream/pipelining.ts'
import { jsonReply, prefersPage, refusalReply, writeReply } from '../downstream/reply.ts'
import { parseTarget, loggableTarget } from '../downstream/target.ts'
import { Failure, methodNotAllowed, notFound, Refusal } from '../errors.ts'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { type Decision, exceeded } from '../limit/decision.ts'
import { authenticate, refuseCounted } from './authenticate.ts'
import { Exchange, type GatewayDeps, recordOutcome } from './exchange.ts'
import { forward } from './forward.ts'

type Outcome = Refusal | undefined

/** The life of a request: each phase returns the refusal that ends it, or undefined. */
const PHASES = [parse, match, screen, authenticate, limit, answer]

/** Takes a request through the phases; a promise only where one of them waits. */
function run(deps: GatewayDeps, exchange: Exchange, from = 0): Outcome | Promise<Outcome> {
  for (let i = from; i < PHASES.length; i++) {
    const outcome = PHASES[i]!(deps, exchange)
    if (outcome instanceof Promise)
      return outcome.then((refusal) =>
        refusal === undefined ? run(deps, exchange, i + 1) : refused(deps, exchange, refusal),
      )
    if (outcome !== undefined) return refused(deps, exchange, outcome)
  }
  return undefined
}

/** Serves one request. Calls `done` when its response is closed and it is logged. */
export function createGateway(deps: GatewayDeps): Serve {
  return (request, response, expectsContinue, done) => {
    const x = new Exchange(request, response, expectsContinue, deps.peers)
    // The outcome, and the close of the response.
    let awaited = 2
    const finish = (): void => {
      if (--awaited > 0) return
      recordOutcome(x)
      deps.observe(x)
      done()
    }
    const end = (refusal: Outcome): void => {
      if (refusal !== undefined) refuse(deps, x, refusal)
      finish()
    }
    response.on('close', finish)
    let outcome: Outcome | Promise<Outcome>
    try {
      outcome = run(deps, x)
    } catch (failure) {
      outcome = toRefusal(failure)
    }
    if (outcome instanceof Promise) outcome.then(end, (failure) => end(toRefusal(failure)))
    // Not at once: Node has not yet parsed the end of the request, and a refusal before that would close its socket.
    else callAtIterationEnd(() => end(outcome))
  }
}

/** 400: a target, host or framing that can be read in two ways. */
function parse({ serves, servesOthers }: GatewayDeps, exchange: Exchange): Outcome {
  const { request } = exchange
  exchange.head = readHead(request.rawHeaders)
  exchange.bodyLength = bodyLength(exchange.method, request.httpVersion, request.headers)
  // Whatever the refusal: where this request ends, another server may see the next one begin.
  if (exchange.bodyLength instanceof Refusal) exchange.response.shouldKeepAlive = false
  const target = parseTarget(request.url ?? '', exchange.head.hosts, serves, servesOthers)
  if (target instanceof Refusal) {
    exchange.path = loggableTarget(request.url ?? '')
    return target
  }
  exchange.target = target
  exchange.host = target.host
  exchange.path = target.path
  return undefined
}

/** 404, 405: no route. */
function match({ match: router }: GatewayDeps, exchange: Exchange): Outcome {
  const found = router(exchange.method, exchange.target!.host, exchange.target!.segments)
  if (found === undefined) return notFound()
  if ('allow' in found) {
    exchange.nearest = found.nearest
    return methodNotAllowed(found.allow)
  }
  exchange.route = found.route
  exchange.params = found.params
  return undefined
}

/**
 * Refuses without authentication: an ambiguous framing (400, 501), addresses with too many failures (429), except on open routes,
 * and invalid path parameters (400) and too large a body (413). If there is a token, the last two wait until it is verified, as the
 * response then shows the limit.
 */
function screen({ failures }: GatewayDeps, exchange: Exchange): Outcome {
  const { authenticate: how } = exchange.route!
  if (exchange.bodyLength instanceof Refusal) return exchange.bodyLength
  const tooManyFailures = how === 'none' ? undefined : failures?.refusal(exchange.ip)
  const hasToken = how === 'bearer' && exchange.head.authorization.length > 0
  return tooManyFailures ?? (hasToken ? undefined : refuseCounted(exchange))
}

/** 429: over a limit. 401: a proof that was used before. Throws 503 where the store is down and the operator chose `deny`. `respond` charges its proof itself. */
function limit(deps: GatewayDeps, exchange: Exchange): Outcome | Promise<Outcome> {
  const { quotas, proof, route } = exchange
  if (route!.forward === undefined || (quotas.length === 0 && proof === undefined)) return undefined
  exchange.limitAt = performance.now()
  const decision = exchange.cachedRefusal ?? deps.limiter.decide(quotas, proof)
  return decision instanceof Promise
    ? decision.then((late) => decided(deps, exchange, late))
    : decided(deps, exchange, decision)
}

function decided({ rateLimitHeaders }: GatewayDeps, exchange: Exchange, decision: Decision): Outcome {
  if (decision.replayed === true) return exchange.boundToken!.replayed()
  exchange.decidedAt = performance.now()
  if (exchange.quotas.length === 0) return undefined
  exchange.decision = decision
  exchange.rateLimit = rateLimitHeaders(decision, exchange.quotas)
  return decision.admitted ? undefined : exceeded(decision)
}

/** Has the upstream answer, or the gateway itself. */
function answer(deps: GatewayDeps, exchange: Exchange): Promise<Outcome> {
  const { forward: upstream } = exchange.route!
  if (upstream === undefined) return respond(deps, exchange)
  deps.trace?.(exchange)
  return forward(exchange, upstream)
}

/** Answers `respond: limits`. */
async function respond(deps: GatewayDeps, exchange: Exchange): Promise<Outcome> {
  const { limiter, limitsOf } = deps
  // All at once, so that the caller waits for Redis once; the limit shown is one of those listed, and read once.
  const [decision, limits, rateLimit] = await Promise.all([
    limiter.decide([], exchange.proof),
    limitsOf(exchange.caller!),
    readLimit(deps, exchange),
  ])
  if (decision.replayed === true) return exchange.boundToken!.replayed()
  exchange.rateLimit = rateLimit
  exchange.bytes = writeReply(exchange.response, jsonReply(limits, exchange.requestId, exchange.rateLimit))
  return undefined
}

/** Has the refusal of a known caller that was not charged show its limit: every response of a limited route does. */
function refused(deps: GatewayDeps, exchange: Exchange, refusal: Refusal): Outcome | Promise<Outcome> {
  const isUnknown = exchange.caller?.client === undefined || refusal.status === 401
  if (isUnknown || exchange.limitAt !== undefined) return refusal
  return readLimit(deps, exchange).then((fields) => {
    exchange.rateLimit = fields
    return refusal
  })
}

/** Returns the limit fields of a caller that was not charged; undefined if the store cannot be asked. */
async function readLimit({ readAllowance, rateLimitHeaders }: GatewayDeps, exchange: Exchange) {
  const { shownQuota, refuseParams } = exchange.route!
  const quota = shownQuota(
    exchange.caller!,
    refuseParams(exchange.params) === undefined ? exchange.params : {},
  )
  const allowance = quota && (await readAllowance(quota).catch(() => undefined))
  if (allowance === undefined) return undefined
  const decision: Decision = { admitted: true, allowances: [allowance], mode: 'store', cached: true }
  return rateLimitHeaders(decision, [quota!])
}

/** Turns a refusal into the reply, in the format of the route or host. */
function refuse(deps: GatewayDeps, exchange: Exchange, refusal: Refusal): void {
  const tooManyFailures = isFailure(exchange, refusal) ? deps.failures?.count(exchange.ip) : undefined
  exchange.refusal = tooManyFailures ?? refusal
  const route = exchange.route ?? exchange.nearest
  const isRead = route?.authenticate === 'authorization' && prefersPage(exchange.request.headers)
  const format = isRead ? 'page' : (route?.errorFormat ?? deps.errorFormatOf(exchange.head.hosts[0]))
  try {
    exchange.bytes += writeReply(
      exchange.response,
      refusalReply(exchange.refusal, format, exchange.requestId, exchange.rateLimit),
    )
  } catch (failure) {
    exchange.refusal = toRefusal(failure)
    exchange.response.destroy()
  }
}

/** True for what `failures` counts: a request that no route takes, or whose caller could not authenticate. */
function isFailure({ route }: Exchange, { status }: Refusal): boolean {
  return status === 401 || (route === undefined && status < 500 && status !== 429)
}

function toRefusal(failure: unknown): Refusal {
  if (failure instanceof Failure) return failure.refusal
  return new Refusal('InternalServer', 'The gateway failed to handle this request.', { cause: failure })
}
