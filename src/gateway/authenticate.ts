import { originOf } from '../authenticate/proof/dpop.ts'
import type { Authenticated } from '../authenticate/token/bearer.ts'
import { type BoundToken, requireScope } from '../authenticate/token/challenge.ts'
import type { Identity } from '../authenticate/token/claims.ts'
import { readBody } from '../downstream/whole-body.ts'
import { tooLarge } from '../downstream/body.ts'
import { clientCertificate } from '../downstream/client-certificate.ts'
import { Refusal } from '../errors.ts'
import type { Caller } from '../policy/facts.ts'
import type { Body, Guard } from '../par/form.ts'
import type { GatewayDeps, Outcome, Routed } from './exchange.ts'
import { refusePlainHead, refusePlainParameters } from './plain-http.ts'

/**
 * Authenticates the caller as the route requires, and applies the route's limits to it. Returns a
 * 400, 401, 403 or 503; on the PAR and the authorisation endpoint also a 413 or 429. Returns a
 * promise only if it must wait for keys, introspection, a proof or a body.
 */
export function authenticate(deps: GatewayDeps, exchange: Routed): Outcome | Promise<Outcome> {
  const { head, ip, request, route } = exchange
  const plain = refusePlainHead(deps, exchange)
  if (plain !== undefined) return plain
  switch (route.authenticate) {
    case 'bearer':
      return authenticateByToken(deps, exchange)
    case 'key':
    case 'bearer or key': {
      const found = deps.keys!.identify(request.rawHeaders, head.authorization, route.authenticate)
      return found === undefined ? authenticateByToken(deps, exchange) : admit(deps, exchange, found)
    }
    case 'none':
      exchange.caller = { ip }
      return applyLimits(exchange, exchange.caller)
    default:
      // The upstream authenticates the clients of identity endpoints: the guards may know only an unverified client_id.
      exchange.caller = { ip }
      return check(deps, exchange, deps.guards![route.authenticate])
  }
}

function authenticateByToken(deps: GatewayDeps, exchange: Routed): Outcome | Promise<Outcome> {
  const { asked, head, method, request, target, trusted } = exchange
  const { publicUrl } = deps
  const found = deps.authenticate(head.authorization, () => ({
    ...(publicUrl ?? originOf(request, trusted, asked?.host)),
    method,
    path: (publicUrl?.prefix ?? '') + target.path,
    hidesPath: deps.hidesPath,
    proofs: head.proofs,
    certificate: () =>
      clientCertificate(request, trusted, deps.certificateField, () =>
        deps.onSeveralCertificates(exchange.peer),
      ),
  }))
  return found instanceof Promise
    ? found.then((result) => admit(deps, exchange, result))
    : admit(deps, exchange, found)
}

/** Sets the caller and its quotas, unless the caller is refused or lacks a right. */
function admit(deps: GatewayDeps, exchange: Routed, found: Authenticated) {
  const { ip, route } = exchange
  if (found instanceof Refusal) return orByKey(deps, exchange, found)
  const identity: Identity = 'prove' in found ? found.identity : found
  const { client, user, claims, plan } = identity
  const caller = { client, user, ip, claims, plan }
  const forbidden =
    requireScope(identity, route.scope, deps.resource?.resource) ??
    refuseCounted(exchange) ??
    applyLimits(exchange, caller)
  if ('prove' in found) return prove(deps, exchange, caller, found).then((unproved) => unproved ?? forbidden)
  exchange.caller = caller
  return forbidden
}

/** Offers an API key in a refusal by a token, if the route accepts both; a refusal by a key offers it already. */
function orByKey({ keys }: GatewayDeps, { head, route }: Routed, refusal: Refusal): Refusal {
  const isByToken = route.authenticate === 'bearer or key' && head.authorization.length > 0
  return isByToken ? keys!.offer(refusal) : refusal
}

/** Applies the limits of the route. Returns a 400 or 403 if the request lacks a part of a key. */
function applyLimits(exchange: Routed, caller: Caller): Outcome {
  const quotas = exchange.route.quotas(caller, exchange, Date.now())
  if (quotas instanceof Refusal) return quotas
  exchange.quotas = quotas
  return undefined
}

/** Returns a 400 for path parameters that the limits cannot count by, a 413 for too large a body. */
export function refuseCounted(exchange: Routed): Outcome {
  const { bodyLength = 0, route } = exchange
  return route.refuseParams(exchange) ?? (bodyLength > route.maxBody ? tooLarge(route.maxBody) : undefined)
}

/**
 * Verifies the proof of a bound token, and sets the caller. Skipped if the limiter's cache refuses
 * the call: no signature is verified then, and the proof stays usable.
 */
async function prove(deps: GatewayDeps, exchange: Routed, caller: Caller, token: BoundToken) {
  exchange.cachedRefusal = deps.limiter.recall(exchange.quotas)
  if (exchange.cachedRefusal === undefined) {
    const proof = await token.prove()
    if (proof instanceof Refusal) return orByKey(deps, exchange, proof)
    exchange.proved = { token, quota: exchange.route.proofQuota(proof, caller, exchange) }
  }
  exchange.caller = caller
  return undefined
}

/** Checks the query and the form of a request to an identity endpoint. */
async function check(deps: GatewayDeps, exchange: Routed, guard: Guard): Promise<Outcome> {
  const form = exchange.method === 'POST' ? await readForm(deps, exchange) : undefined
  if (form instanceof Refusal) return form
  if (exchange.response.destroyed) return undefined
  const plain = refusePlainParameters(deps, exchange, form)
  if (plain !== undefined) return plain
  return await guard(exchange.target.query, form, (id) => (exchange.claimed = id))
}

/** Reads the whole body, which is forwarded byte for byte; returns undefined if the caller has disconnected. */
async function readForm({ failures }: GatewayDeps, exchange: Routed): Promise<Body | Outcome> {
  const { request, response } = exchange
  if (exchange.expectsContinue) response.writeContinue()
  const body = await readBody(response, exchange.route.maxBody, exchange.ip)
  if (body instanceof Refusal) return body
  if (body === undefined) {
    // Nothing is forwarded on a destroyed response.
    response.destroy()
    return undefined
  }
  // The address may have failed too often while the body arrived.
  const tooManyFailures = failures?.refusal(exchange.ip)
  if (tooManyFailures !== undefined) return tooManyFailures
  exchange.form = body
  const { 'content-type': contentType, 'content-encoding': contentEncoding } = request.headers
  return { contentType, contentEncoding, body, authorization: exchange.head.authorization }
}
