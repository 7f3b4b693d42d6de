import type { IncomingMessage, ServerResponse } from 'node:http'
import { certificateField } from '../downstream/client-certificate.ts'
import { type Exchange, failed } from './exchange.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { BodyLength } from '../downstream/head.ts'
import { requestHeaders } from '../upstream/headers.ts'
import { ipPart } from '../limit/key.ts'
import type { Reply } from '../downstream/reply.ts'
import type { Route } from '../downstream/router.ts'
import type { Target } from '../downstream/target.ts'

/** What the earlier stages found out for the last one. */
export interface Understood {
  readonly target: Target
  readonly route: Route
  readonly to: Forward
  readonly body: BodyLength
  /** The body, where it was read. */
  readonly pushed?: Buffer
  /** The fields of the decision, where one was made. */
  readonly rateLimit?: readonly string[] | undefined
}

/** A lone surrogate, which no client's name holds: the addresses have their shares apart from the clients. */
const NO_NAME = '\ud800'

/** Forwards a request and notes what became of it: undefined where the upstream's answer was streamed, else the gateway's own. */
export async function deliver(
  exchange: Exchange,
  request: IncomingMessage,
  response: ServerResponse,
  { target, route, to, body, pushed, rateLimit }: Understood,
): Promise<Reply | undefined> {
  const proto = 'encrypted' in request.socket ? 'https' : 'http'
  const host = request.headers.host!
  const client = exchange.caller?.client
  exchange.askedAt = performance.now()
  const forwardedBy = {
    peer: exchange.peer,
    proto,
    host,
    port: String(request.socket.localPort ?? ''),
    requestId: exchange.requestId,
    clientCert: proto === 'https' ? certificateField(request.socket) : undefined,
    trusted: exchange.trusted,
  } as const
  const headers = requestHeaders(request.headers, forwardedBy, to.identityHeaders)
  const forwarded = await to(request, response, {
    target: target.path + target.query,
    headers,
    bodyLength: body,
    body: pushed,
    maxBody: route.maxBody,
    timeoutMs: route.timeoutMs,
    rateLimit,
    caller: client ?? NO_NAME + ipPart(exchange.ip),
  })
  if (forwarded.headAt !== undefined) exchange.headAt = forwarded.headAt
  if (response.headersSent) {
    exchange.source = 'upstream'
    exchange.status = response.statusCode
  }
  if (forwarded.error) exchange.error = forwarded.error
  if (forwarded.givenUp !== undefined) exchange.givenUp = forwarded.givenUp
  if (forwarded.outcome === 'cut') exchange.incomplete = 'cut'
  return forwarded.outcome === 'failed' ? failed(exchange, forwarded.error!, rateLimit) : undefined
}
