import { certificateField } from '../downstream/client-certificate.ts'
import type { BodyLength } from '../downstream/body.ts'
import type { Refusal } from '../errors.ts'
import { ipPart } from '../limit/key.ts'
import { requestHeaders } from '../upstream/headers.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Exchange } from './exchange.ts'

/** A lone surrogate, which no client's name holds: addresses are told apart from clients in the upstream's queue. */
const NO_NAME = '\ud800'

/** Forwards a request and streams the answer back. Returns the refusal (502, 503, 504) where no answer was begun. */
export async function forward(x: Exchange, upstream: Forward): Promise<Refusal | undefined> {
  const { request, response, pushed, rateLimit } = x
  const route = x.route!
  const target = x.target!
  if (x.expectsContinue && pushed === undefined) response.writeContinue()
  const proto = 'encrypted' in request.socket ? 'https' : 'http'
  x.askedAt = performance.now()
  const headers = requestHeaders(
    request.headers,
    {
      peer: x.peer,
      proto,
      host: request.headers.host!,
      port: String(request.socket.localPort ?? ''),
      requestId: x.requestId,
      clientCert: proto === 'https' ? certificateField(request.socket) : undefined,
      trusted: x.trusted,
    },
    upstream.identityHeaders,
  )
  x.forwarded = await upstream(request, response, {
    target: target.path + target.query,
    headers,
    // Screened before.
    bodyLength: pushed?.length ?? (x.bodyLength as BodyLength),
    body: pushed,
    maxBody: route.maxBody,
    timeoutMs: route.timeoutMs,
    rateLimit,
    caller: x.caller?.client ?? NO_NAME + ipPart(x.ip),
  })
  return x.forwarded.outcome === 'failed' ? x.forwarded.error : undefined
}
