import { readBody } from '../downstream/body.ts'
import { Refusal } from '../errors.ts'
import { invalidRequest } from '../par/form.ts'
import type { GatewayDeps } from './deps.ts'
import type { Exchange } from './exchange.ts'

/** Reads a pushed authorisation request whole and checks it; it is forwarded byte for byte. 400, 401, 413, 429. */
export async function checkPushed(
  { guard, failures }: GatewayDeps,
  x: Exchange,
): Promise<Refusal | undefined> {
  const { request, response, route } = x
  // Backends that merge it with the form would read another request than the guard (RFC 6749 section 2.3.1).
  if (x.target!.query !== '') return invalidRequest('Send the parameters in the form, and no query.')
  if (x.expectsContinue) response.writeContinue()
  const body = await readBody(request, response, route!.maxBody)
  if (body instanceof Refusal) return body
  if (body === undefined) {
    // The caller left: nothing is forwarded on a destroyed response.
    response.destroy()
    return undefined
  }
  // While the body came, the address may have failed too often.
  const tooMany = failures?.refusal(x.ip)
  if (tooMany !== undefined) return tooMany
  const refusal = await guard!.check({
    contentType: request.headers['content-type'],
    contentEncoding: request.headers['content-encoding'],
    authorization: x.head.authorization,
    body,
  })
  if (refusal !== undefined) return refusal
  x.pushed = body
  // Which client pushed it is the upstream's to say: what the guard knows may be no more than a claim.
  x.caller = { ip: x.ip }
  return undefined
}
