import { hasChunks } from '../downstream/body.ts'
import { corsOf } from '../downstream/cors.ts'
import { BODILESS, bodyLength, mayBeUnread } from '../downstream/framing.ts'
import { contradictingOverride } from '../downstream/head.ts'
import type { Serve } from '../downstream/listener/pipelining.ts'
import { matchReadings, refuseReadings } from '../downstream/readings.ts'
import { hasReleasedSocket } from '../downstream/listener/released.ts'
import { acceptsKeys, acceptsTokens, isGuarded } from '../downstream/router.ts'
import { ABSOLUTE, loggablePath, loggableTarget, parseTarget } from '../downstream/target.ts'
import { refuseWebSocket } from '../downstream/websocket.ts'
import { ambiguousFraming, badRequest, methodNotAllowed, notFound, Refusal } from '../errors.ts'
import type { Decision } from '../limit/decision.ts'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { authenticate, refuseCounted } from './authenticate.ts'
import { endCall, recordEnd } from './end.ts'
import { exceeded } from './exceeded.ts'
import type { GatewayDeps, Identified, Outcome, Parsed, Routed } from './exchange.ts'
import { Exchange, isIdentified } from './exchange.ts'
import { forward, limitFields } from './forward.ts'
import { Phases } from './phases.ts'
import { answerPreflight } from './preflight.ts'
import { refuse, toRefusal, write } from './respond.ts'
import { openSettlement } from './settlement.ts'

/**
 * The phases of a request, in order, and what is known after each. For a bound token, `authenticate`
 * already asks the limiter's cache: `limit` uses what it refuses.
 */
const PHASES = Phases.first<Parsed>(parse)
  .next<Routed>(match)
  .next(screen)
  .next<Identified>(authenticate)
  .next(limit)
  .next(forward)

/** Creates the gateway, which serves one request per call. Calls `done` when the response is closed and logged. */
export function createGateway(deps: GatewayDeps): Serve {
  return (response, expectsContinue, done) => {
    const exchange = new Exchange(response, expectsContinue, deps)
    // The outcome, and the close of the response.
    let awaitedEnds = 2
    const finish = (): void => {
      if (--awaitedEnds > 0) return
      recordEnd(deps, exchange)
      endCall(deps, exchange)
      deps.observe(exchange)
      done()
    }
    const end = (refusal: Outcome): void => {
      if (refusal !== undefined) refuse(deps, exchange, refusal)
      else if (exchange.reply !== undefined) write(deps, exchange, exchange.reply)
      finish()
    }
    response.on('close', finish)
    let outcome: Outcome | Promise<Outcome>
    try {
      outcome = run(deps, exchange)
    } catch (failure) {
      outcome = toRefusal(failure)
    }
    if (outcome instanceof Promise) outcome.then(end, (failure) => end(toRefusal(failure)))
    // Not at once: Node has not yet parsed the end of the request, and would close its socket on an earlier refusal.
    else callAtIterationEnd(() => end(outcome))
  }
}

/** Runs the phases, until one has a refusal or a reply. Returns a promise only if a phase waits. */
function run(deps: GatewayDeps, exchange: Exchange, from = 0): Outcome | Promise<Outcome> {
  for (let i = from; i < PHASES.length && exchange.reply === undefined; i++) {
    const outcome = PHASES.run(i, deps, exchange)
    if (outcome instanceof Promise)
      return outcome.then((refusal) =>
        refusal === undefined ? run(deps, exchange, i + 1) : showLimit(deps, exchange, refusal),
      )
    if (outcome !== undefined) return showLimit(deps, exchange, outcome)
  }
  return undefined
}

/**
 * Parses the head, the body length and the target. Returns a 400 for a target that no server may
 * get, and for a field that asks for another method; `screen` that for ambiguous framing.
 */
function parse(deps: GatewayDeps, exchange: Exchange): Outcome {
  const { request, response, asked } = exchange
  if (asked !== undefined && asked.missing.length > 0)
    return badRequest(`The proxy that asks must send ${asked.missing.join(', ')}.`)
  // The gateway cannot drop the field, and the backend could take it for the one that limits read.
  const respelled = asked && deps.askedFields.findRespelled(request.rawHeaders)
  if (respelled !== undefined)
    return badRequest(`Do not send ${respelled}: it is read here in another spelling.`)
  const override = contradictingOverride(exchange.head, exchange.method)
  if (override !== undefined)
    return badRequest(`The field ${override} asks for another method; send the request with that method.`)
  const length = bodyLength(request)
  if (length instanceof Refusal) {
    exchange.misframed = length
    // Any refusal closes the connection, so that leftover bytes are not parsed as a request.
    response.shouldKeepAlive = false
  } else exchange.bodyLength = length
  const requested = asked?.target ?? request.url ?? ''
  const hosts = asked === undefined ? exchange.head.hosts : [asked.host]
  const mayLackHost = asked === undefined && request.httpVersion === '1.0'
  const target = parseTarget(requested, hosts, deps, mayLackHost)
  if (target instanceof Refusal) {
    exchange.path = loggableTarget(requested)
    return target
  }
  // The upstream gets the host that the target names (RFC 9112 section 3.2.2).
  if (hosts.length === 0 && target.host !== '') request.headers.host = ABSOLUTE.exec(requested)![1]!
  exchange.target = target
  exchange.path = loggablePath(target.path)
  return undefined
}

/**
 * Finds the route. Returns a 400 if servers could read the path as one of another route or id, a 404
 * if no route matches the path, or if it is not served here, a 405 if none matches the method.
 * Answers preflights.
 */
function match(deps: GatewayDeps, exchange: Parsed): Outcome {
  const { asked, method, peer, request, target, trusted } = exchange
  if (answerPreflight(deps, exchange)) return undefined
  const found = deps.match(method, target.host, target.segments)
  // Before any refusal, so that pages can read it.
  if (asked === undefined) exchange.cors = corsOf(found, deps.cors)
  if (target.isAmbiguous) {
    const readings = matchReadings(deps.match, method, target)
    const refusal = readings instanceof Refusal ? readings : refuseReadings(readings)
    if (refusal !== undefined) return refusal
  }
  if (found === undefined) return notFound()
  if ('allow' in found) {
    exchange.nearest = found.nearest
    return methodNotAllowed(found.allow)
  }
  const { route, params } = found
  const { forward, respond } = route
  // A proxy that asks cannot be given a response in place of its upstream's, and does not show the
  // bodies that the guards check.
  const isServed = asked ? !respond && !isGuarded(route) : (forward ?? respond)
  if (!isServed) return notFound()
  if (route.countsByIp && !trusted && request.headers['x-forwarded-for'] !== undefined)
    deps.onIgnoredForwardedFor(peer)
  exchange.route = route
  exchange.params = params
  return undefined
}

/**
 * Refuses without authentication: ambiguous framing (400, 501), a WebSocket that the route does not
 * open (501) or that is malformed (400), a body that the route does not accept with the method (400),
 * addresses with too many failures (429), except on open routes,
 * invalid path parameters (400) and too large a body (413). With a token, the last two come after
 * its verification, and show the limit.
 */
function screen(deps: GatewayDeps, exchange: Routed): Outcome | Promise<Outcome> {
  const { method, bodyLength: length, misframed } = exchange
  if (misframed !== undefined) return misframed
  const refusal = screenUpgrade(exchange)
  if (refusal !== undefined) return refusal
  if (!mayBeUnread(method, length)) return screenFramed(deps, exchange)
  if (length === undefined && !exchange.expectsContinue) return screenChunks(deps, exchange)
  return refuseUnread(exchange) ?? screenFramed(deps, exchange)
}

/** Refuses a WebSocket that the route does not open; a proxy that asks opens it itself. */
function screenUpgrade({ asked, request, route }: Routed): Outcome {
  if (asked !== undefined || request.headers.upgrade === undefined) return undefined
  return refuseWebSocket(request.headers, route.upgrade === 'websocket', hasReleasedSocket(request))
}

/** Takes an empty chunked body for none, as reactor-netty and HAProxy write it. */
async function screenChunks(deps: GatewayDeps, exchange: Routed): Promise<Outcome> {
  const hasBody = await hasChunks(exchange.request)
  if (hasBody instanceof Refusal) return hasBody
  if (!hasBody) exchange.bodyLength = 0
  return (hasBody ? refuseUnread(exchange) : undefined) ?? screenFramed(deps, exchange)
}

/** Refuses a body that servers may leave unread, except where the route accepts it. */
function refuseUnread({ asked, method, response, route }: Routed): Outcome {
  const isOrdinary = method === 'DELETE' || !BODILESS.has(method)
  if (asked === undefined && (isOrdinary || route.body === true)) return undefined
  // The rest must not be parsed as a request.
  response.shouldKeepAlive = false
  return ambiguousFraming(`A ${method} request carries no body here.`)
}

function screenFramed({ failures, keys }: GatewayDeps, exchange: Routed): Outcome {
  const { head, ip, request, route } = exchange
  const tooManyFailures = route.authenticate === 'none' ? undefined : failures?.refusal(ip)
  const hasToken = acceptsTokens(route) && head.authorization.length > 0
  const hasKey = acceptsKeys(route) && request.headers[keys!.field] !== undefined
  return tooManyFailures ?? (hasToken || hasKey ? undefined : refuseCounted(exchange))
}

/**
 * Charges the limits. Returns a 429 if one is exceeded, a 401 for a replayed proof; throws or
 * rejects with a 503 under `onOutage: deny`. For `respond` routes, `forward` charges the proof.
 */
function limit(deps: GatewayDeps, exchange: Identified): Outcome | Promise<Outcome> {
  const { quotas, proved, route } = exchange
  if (route.respond !== undefined || (quotas.length === 0 && proved === undefined)) return undefined
  exchange.limitAt = performance.now()
  const decision = exchange.cachedRefusal ?? deps.limiter.decide(quotas, proved?.quota)
  return decision instanceof Promise
    ? decision.then((result) => applyDecision(deps, exchange, result))
    : applyDecision(deps, exchange, decision)
}

function applyDecision(deps: GatewayDeps, exchange: Identified, decision: Decision): Outcome {
  const { caller, proved, quotas, route } = exchange
  if (proved !== undefined && decision.replayed === true) return proved.token.replayed()
  exchange.decidedAt = performance.now()
  if (quotas.length === 0) return undefined
  exchange.decision = decision
  exchange.callers = route.callersOf(quotas, caller, exchange)
  // A refusal charges nothing: refused callers must not make Redis read again.
  if (decision.admitted) deps.usage.drop(quotas)
  if (decision.admitted && route.settling !== undefined)
    exchange.settlement = openSettlement(deps, route.settling, quotas, decision)
  exchange.rateLimitFields = deps.rateLimitHeaders(decision, quotas)
  return decision.admitted ? undefined : exceeded(decision, route.limits)
}

/**
 * Adds the limit to the refusal of an authenticated caller that was not charged: every response of
 * a limited route shows it.
 */
function showLimit(deps: GatewayDeps, exchange: Exchange, refusal: Refusal) {
  const isCharged = exchange.limitAt !== undefined
  if (isCharged || refusal.status === 401) return refusal
  if (!isIdentified(exchange) || exchange.caller.client === undefined) return refusal
  return limitFields(deps, exchange).then((fields) => {
    exchange.rateLimitFields = fields
    return refusal
  })
}
