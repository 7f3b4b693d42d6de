import type { BodyLength } from '../downstream/body.ts'
import { certificateField } from '../downstream/client-certificate.ts'
import type { Refusal } from '../errors.ts'
import { ipPart } from '../limit/key.ts'
import { requestHeaders } from '../upstream/headers.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Exchange } from './exchange.ts'

/** Prefixes the IP address of a caller without a client id, as its key in the upstream's queue. A lone surrogate, which no client id contains. */
const ANONYMOUS = '\ud800'

/** Forwards a request and streams the response back. Returns a 502, 503 or 504 if no response was begun. */
export function forward(exchange: Exchange, upstream: Forward): Promise<Refusal | undefined> {
  const { request, response, form, rateLimit } = exchange
  const { maxBody, timeoutMs } = exchange.route!
  const target = exchange.target!
  if (exchange.expectsContinue && form === undefined) response.writeContinue()
  const proto = 'encrypted' in request.socket ? 'https' : 'http'
  exchange.forwardedAt = exchange.decidedAt ?? performance.now()
  const headers = requestHeaders(
    request.headers,
    {
      peer: exchange.peer,
      ip: exchange.ip,
      proto,
      host: request.headers.host!,
      port: String(request.socket.localPort ?? ''),
      requestId: exchange.requestId,
      clientCert: proto === 'https' ? certificateField(request.socket) : undefined,
      trusted: exchange.trusted,
    },
    upstream.identityHeaders,
  )
  const forwarded = upstream(request, response, {
    target: target.path + target.query,
    headers,
    // Screened before.
    bodyLength: form?.length ?? (exchange.bodyLength as BodyLength),
    body: form,
    maxBody,
    timeoutMs,
    rateLimit,
    requestId: exchange.requestId,
    caller: exchange.caller?.client ?? ANONYMOUS + ipPart(exchange.ip),
  })
  return forwarded.then((ended) => {
    exchange.forwarded = ended
    exchange.bytes = ended.bytes
    return ended.outcome === 'failed' ? ended.error : undefined
  })
}
