import { readBody } from '../downstream/body.ts'
import { Refusal } from '../errors.ts'
import { type Body, invalidRequest } from '../par/form.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'

type Outcome = Refusal | undefined

/** Checks a pushed authorisation request. */
export async function checkPushed(deps: GatewayDeps, exchange: Exchange): Promise<Outcome> {
  // Backends that merge it with the form would read another request than the guard (RFC 6749 section 2.3.1).
  if (exchange.target!.query !== '') return invalidRequest('Send the parameters in the form, and no query.')
  const form = await readForm(deps, exchange)
  if (form === undefined || form instanceof Refusal) return form
  const { authorization } = exchange.head
  return await deps.guards!.par.check({ ...form, authorization }, (clientId) => (exchange.claimed = clientId))
}

/** Checks a request to the authorisation endpoint, of whose query and form the gateway reads the client and its request. */
export async function checkAuthorization(deps: GatewayDeps, exchange: Exchange): Promise<Outcome> {
  const form = exchange.method === 'POST' ? await readForm(deps, exchange) : undefined
  if (form instanceof Refusal || exchange.response.destroyed) return form as Refusal | undefined
  exchange.caller = { ip: exchange.ip }
  const query = exchange.target!.query.slice(1)
  return await deps.guards!.authorization.check({ query, form }, (clientId) => (exchange.claimed = clientId))
}

/** Reads the whole body, which is forwarded byte for byte; undefined if the caller has left. */
async function readForm({ failures }: GatewayDeps, exchange: Exchange): Promise<Body | Outcome> {
  const { request, response } = exchange
  if (exchange.expectsContinue) response.writeContinue()
  const body = await readBody(request, response, exchange.route!.maxBody, exchange.ip)
  if (body instanceof Refusal) return body
  if (body === undefined) {
    // Nothing is forwarded on a destroyed response.
    response.destroy()
    return undefined
  }
  // While the body came, the address may have failed too often.
  const tooManyFailures = failures?.refusal(exchange.ip)
  if (tooManyFailures !== undefined) return tooManyFailures
  exchange.form = body
  // The client is the upstream's to verify: the guard may know no more than a claim.
  exchange.caller = { ip: exchange.ip }
  const { 'content-type': contentType, 'content-encoding': contentEncoding } = request.headers
  return { contentType, contentEncoding, body }
}
