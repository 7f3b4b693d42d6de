import { readBody } from '../downstream/whole-body.ts'
import { Refusal } from '../errors.ts'
import { type Body, invalidRequest } from '../par/form.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'

type Outcome = Refusal | undefined

/** Checks a pushed authorisation request. */
export async function checkPushed(deps: GatewayDeps, x: Exchange): Promise<Outcome> {
  // Backends that merge it with the form would read another request than the guard (RFC 6749 section 2.3.1).
  if (x.target!.query !== '') return invalidRequest('Send the parameters in the form, and no query.')
  const form = await readForm(deps, x)
  if (form === undefined || form instanceof Refusal) return form
  const { authorization } = x.head
  return await deps.guards!.par.check({ ...form, authorization }, (clientId) => (x.claimed = clientId))
}

/** Checks a request to the authorisation endpoint, of whose query and form the gateway reads the client and its request. */
export async function checkAuthorization(deps: GatewayDeps, x: Exchange): Promise<Outcome> {
  const form = x.method === 'POST' ? await readForm(deps, x) : undefined
  if (form instanceof Refusal || x.response.destroyed) return form as Refusal | undefined
  x.caller = { ip: x.ip }
  const query = x.target!.query.slice(1)
  return await deps.guards!.authorization.check({ query, form }, (clientId) => (x.claimed = clientId))
}

/** Reads the whole body, which is forwarded byte for byte; undefined if the caller has left. */
async function readForm({ failures }: GatewayDeps, x: Exchange): Promise<Body | Outcome> {
  const { request, response } = x
  if (x.expectsContinue) response.writeContinue()
  const body = await readBody(request, response, x.route!.maxBody, x.ip)
  if (body instanceof Refusal) return body
  if (body === undefined) {
    // Nothing is forwarded on a destroyed response.
    response.destroy()
    return undefined
  }
  // While the body came, the address may have failed too often.
  const tooManyFailures = failures?.refusal(x.ip)
  if (tooManyFailures !== undefined) return tooManyFailures
  x.form = body
  // The client is the upstream's to verify: the guard may know no more than a claim.
  x.caller = { ip: x.ip }
  const { 'content-type': contentType, 'content-encoding': contentEncoding } = request.headers
  return { contentType, contentEncoding, body }
}
