import type { BodyLength } from '../downstream/body.ts'
import { certificateField } from '../downstream/client-certificate.ts'
import type { Refusal } from '../errors.ts'
import { ipPart } from '../limit/key.ts'
import { requestHeaders } from '../upstream/headers.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Exchange } from './exchange.ts'

/** Prefixes the IP address of a caller without a client id, as its key in the upstream's queue. A lone surrogate, which no client id contains. */
const NO_NAME = '\ud800'

/** Forwards a request and streams the response back. Returns a 502, 503 or 504 if no response was begun. */
export function forward(x: Exchange, upstream: Forward): Promise<Refusal | undefined> {
  const { request, response, form, rateLimit } = x
  const { maxBody, timeoutMs } = x.route!
  const target = x.target!
  if (x.expectsContinue && form === undefined) response.writeContinue()
  const proto = 'encrypted' in request.socket ? 'https' : 'http'
  x.askedAt = x.decidedAt ?? performance.now()
  const headers = requestHeaders(
    request.headers,
    {
      peer: x.peer,
      ip: x.ip,
      proto,
      host: request.headers.host!,
      port: String(request.socket.localPort ?? ''),
      requestId: x.requestId,
      clientCert: proto === 'https' ? certificateField(request.socket) : undefined,
      trusted: x.trusted,
    },
    upstream.identityHeaders,
  )
  const forwarded = upstream(request, response, {
    target: target.path + target.query,
    headers,
    // Screened before.
    bodyLength: form?.length ?? (x.bodyLength as BodyLength),
    body: form,
    maxBody,
    timeoutMs,
    rateLimit,
    requestId: x.requestId,
    caller: x.caller?.client ?? NO_NAME + ipPart(x.ip),
  })
  return forwarded.then((ended) => {
    x.forwarded = ended
    x.bytes = ended.bytes
    return ended.outcome === 'failed' ? ended.error : undefined
  })
}
