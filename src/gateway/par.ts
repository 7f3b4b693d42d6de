import type { IncomingMessage, ServerResponse } from 'node:http'
import { readBody } from '../downstream/body.ts'
import { deliver } from './forward.ts'
import { Refusal } from '../errors.ts'
import { type Exchange, failed } from './exchange.ts'
import { invalidRequest } from '../par/form.ts'
import type { Parts, ServedRoute } from './deps.ts'
import type { Head } from '../downstream/head.ts'
import type { Reply } from '../downstream/reply.ts'
import type { Target } from '../downstream/target.ts'

/** The life of a pushed authorisation request: read whole, checked, and forwarded once, byte for byte. */
export async function push(
  { guard, failures }: Pick<Parts, 'guard' | 'failures'>,
  exchange: Exchange,
  request: IncomingMessage,
  response: ServerResponse,
  { target, route, head }: { readonly target: Target; readonly route: ServedRoute; readonly head: Head },
): Promise<Reply | undefined> {
  // Backends that merge it with the form would read another request than the guard (RFC 6749 section 2.3.1).
  if (target.query !== '') {
    return failed(exchange, invalidRequest('Send the parameters in the form, and no query.'))
  }
  const pushed = await readBody(request, response, route.maxBody)
  // Nobody is left to answer.
  if (pushed === undefined) return undefined
  if (pushed instanceof Refusal) return failed(exchange, pushed)
  // While the body came, the address may have failed too often.
  const late = failures?.refusal(exchange.ip)
  if (late !== undefined) return failed(exchange, late)
  const refusal = await guard!.check({
    contentType: request.headers['content-type'],
    contentEncoding: request.headers['content-encoding'],
    authorization: head.authorization,
    body: pushed,
  })
  if (refusal instanceof Refusal) return failed(exchange, refusal)
  // Who pushed it is the upstream's to say: what the guard knows may be no more than a claim.
  exchange.caller = { ip: exchange.ip }
  const body = pushed.length
  return deliver(exchange, request, response, { target, route, to: route.forward!, body, pushed })
}
