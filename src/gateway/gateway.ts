import { bodyLength, readHead } from '../downstream/body.ts'
import type { Serve } from '../downstream/pipelining.ts'
import { jsonReply, prefersPage, refusalReply, writeReply } from '../downstream/reply.ts'
import { parseTarget, plainTarget } from '../downstream/target.ts'
import { Failure, methodNotAllowed, notFound, Refusal } from '../errors.ts'
import { callAtIterationEnd } from '../iteration.ts'
import { type Decision, exceeded } from '../limit/decision.ts'
import { authenticate, refuseCounted } from './authenticate.ts'
import { Exchange, type GatewayDeps, recordOutcome } from './exchange.ts'
import { forward } from './forward.ts'

type Outcome = Refusal | undefined

/** The life of a request: each phase returns the refusal that ends it, or undefined. */
const PHASES = [understand, match, screen, authenticate, limit, answer]

/** Takes a request through the phases; a promise only where one of them waits. */
function run(deps: GatewayDeps, x: Exchange, from = 0): Outcome | Promise<Outcome> {
  for (let i = from; i < PHASES.length; i++) {
    const outcome = PHASES[i]!(deps, x)
    if (outcome instanceof Promise)
      return outcome.then((refusal) =>
        refusal === undefined ? run(deps, x, i + 1) : refused(deps, x, refusal),
      )
    if (outcome !== undefined) return refused(deps, x, outcome)
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
function understand({ serves, servesOthers }: GatewayDeps, x: Exchange): Outcome {
  const { request } = x
  x.head = readHead(request.rawHeaders)
  x.bodyLength = bodyLength(x.method, request.httpVersion, request.headers)
  // Whatever the refusal: where this request ends, another server may see the next one begin.
  if (x.bodyLength instanceof Refusal) x.response.shouldKeepAlive = false
  const target = parseTarget(request.url ?? '', x.head.hosts, serves, servesOthers)
  if (target instanceof Refusal) {
    x.path = plainTarget(request.url ?? '')
    return target
  }
  x.target = target
  x.host = target.host
  x.path = target.path
  return undefined
}

/** 404, 405: no route. */
function match({ match: router }: GatewayDeps, x: Exchange): Outcome {
  const found = router(x.method, x.target!.host, x.target!.segments)
  if (found === undefined) return notFound()
  if ('allow' in found) {
    x.nearest = found.nearest
    return methodNotAllowed(found.allow)
  }
  x.route = found.route
  x.params = found.params
  return undefined
}

/**
 * Refuses without authentication: an ambiguous framing (400, 501), addresses with too many failures (429), except on open routes,
 * and invalid path parameters (400) and too large a body (413). If there is a token, the last two wait until it is verified, as the
 * response then shows the limit.
 */
function screen({ failures }: GatewayDeps, x: Exchange): Outcome {
  const { authenticate: how } = x.route!
  if (x.bodyLength instanceof Refusal) return x.bodyLength
  const tooManyFailures = how === 'none' ? undefined : failures?.refusal(x.ip)
  const hasToken = how === 'bearer' && x.head.authorization.length > 0
  return tooManyFailures ?? (hasToken ? undefined : refuseCounted(x))
}

/** 429: over a limit. 401: a proof that was used before. Throws 503 where the store is down and the operator chose `deny`. `respond` charges its proof itself. */
function limit(deps: GatewayDeps, x: Exchange): Outcome | Promise<Outcome> {
  const { quotas, proof, route } = x
  if (route!.forward === undefined || (quotas.length === 0 && proof === undefined)) return undefined
  x.limitAt = performance.now()
  const decision = x.cachedRefusal ?? deps.limiter.decide(quotas, proof)
  return decision instanceof Promise
    ? decision.then((late) => decided(deps, x, late))
    : decided(deps, x, decision)
}

function decided({ rateLimitHeaders }: GatewayDeps, x: Exchange, decision: Decision): Outcome {
  if (decision.replayed === true) return x.bound!.replayed()
  x.decidedAt = performance.now()
  if (x.quotas.length === 0) return undefined
  x.decision = decision
  x.rateLimit = rateLimitHeaders(decision, x.quotas)
  return decision.admitted ? undefined : exceeded(decision)
}

/** Has the upstream answer, or the gateway itself. */
function answer(deps: GatewayDeps, x: Exchange): Promise<Outcome> {
  const { forward: upstream } = x.route!
  if (upstream === undefined) return respond(deps, x)
  deps.trace?.(x)
  return forward(x, upstream)
}

/** Answers `respond: limits`. */
async function respond(deps: GatewayDeps, x: Exchange): Promise<Outcome> {
  const { limiter, limitsOf } = deps
  // All at once, so that the caller waits for Redis once; the limit shown is one of those listed, and read once.
  const [decision, limits, rateLimit] = await Promise.all([
    limiter.decide([], x.proof),
    limitsOf(x.caller!),
    readLimit(deps, x),
  ])
  if (decision.replayed === true) return x.bound!.replayed()
  x.rateLimit = rateLimit
  x.bytes = writeReply(x.response, jsonReply(limits, x.requestId, x.rateLimit))
  return undefined
}

/** Has the refusal of a known caller that was not charged show its limit: every response of a limited route does. */
function refused(deps: GatewayDeps, x: Exchange, refusal: Refusal): Outcome | Promise<Outcome> {
  const isUnknown = x.caller?.client === undefined || refusal.status === 401
  if (isUnknown || x.limitAt !== undefined) return refusal
  return readLimit(deps, x).then((fields) => {
    x.rateLimit = fields
    return refusal
  })
}

/** Returns the limit fields of a caller that was not charged; undefined if the store cannot be asked. */
async function readLimit({ readAllowance, rateLimitHeaders }: GatewayDeps, x: Exchange) {
  const { shownQuota, refuseParams } = x.route!
  const quota = shownQuota(x.caller!, refuseParams(x.params) === undefined ? x.params : {})
  const allowance = quota && (await readAllowance(quota).catch(() => undefined))
  if (allowance === undefined) return undefined
  const decision: Decision = { admitted: true, allowances: [allowance], mode: 'store', cached: true }
  return rateLimitHeaders(decision, [quota!])
}

/** Turns a refusal into the reply, in the format of the route or host. */
function refuse(deps: GatewayDeps, x: Exchange, refusal: Refusal): void {
  const tooManyFailures = isFailure(x, refusal) ? deps.failures?.count(x.ip) : undefined
  x.refusal = tooManyFailures ?? refusal
  const route = x.route ?? x.nearest
  const isRead = route?.authenticate === 'authorization' && prefersPage(x.request.headers)
  const format = isRead ? 'page' : (route?.errorFormat ?? deps.errorFormatOf(x.head.hosts[0]))
  try {
    x.bytes += writeReply(x.response, refusalReply(x.refusal, format, x.requestId, x.rateLimit))
  } catch (failure) {
    x.refusal = toRefusal(failure)
    x.response.destroy()
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
