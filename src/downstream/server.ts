import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer, Server as SecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TlsOptions } from 'node:tls'
import { abortBody, bodyRefusal, incompleteRequest } from './body.ts'
import { loads } from './drain.ts'
import { createPipelining, responseOf, type Serve } from './pipelining.ts'
import { METHODS } from './router.ts'
import {
  boundSockets,
  resetSlowReaders,
  type ConnectionPolicy,
  endWithStatus,
  lingerOnClose,
  SLOW_READER_MS,
} from './sockets.ts'

/** The bounds of the callers' listener; milliseconds and bytes. */
export interface Bounds {
  readonly maxConnections: number
  readonly maxConnectionsPerAddress: number
  readonly maxHeaderSize: number
  readonly headersTimeoutMs: number
  readonly requestTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** For a caller that reads nothing of a whole answer; default `READ_MS`, or the request timeout if that is longer. */
  readonly readMs?: number
}

/** PEM texts, and whether callers are asked for certificates. */
export interface Tls {
  readonly cert: string
  readonly key: string
  /** Callers without a certificate of one of these authorities cannot connect. */
  readonly clientCa: string | undefined
  readonly requestClientCert: boolean
}

export interface Unreadable {
  readonly peer: string
  readonly status: number
  readonly reason: string
  /** Of the answer; undefined where there was none. */
  readonly requestId: string | undefined
}

export interface ListenerEvents extends ConnectionPolicy {
  /** Called with bytes that are no request, after they were answered. */
  unreadable(what: Unreadable): void
  /** Called for each TLS handshake that failed, with its peer and the reason. */
  insecure(peer: string, reason: string): void
}

/** How often Node checks for sockets that are over their time. */
const CHECK_MS = 1000
/** Most header fields of a request: each costs more than its bytes, and the smallest has few. */
const MAX_FIELDS = 200

/** Returns the callers' HTTP server, or HTTPS with `tls`. What is no HTTP is answered here and never reaches `serve`. */
export function createListener(serve: Serve, bounds: Bounds, events: ListenerEvents, tls?: Tls): Server {
  const options = {
    maxHeaderSize: bounds.maxHeaderSize,
    headersTimeout: bounds.headersTimeoutMs,
    requestTimeout: bounds.requestTimeoutMs,
    keepAliveTimeout: bounds.keepAliveTimeoutMs,
    connectionsCheckingInterval: CHECK_MS,
    // The gateway reports itself what is wrong with the Host field.
    requireHostHeader: false,
    noDelay: true,
    // Overrides `--insecure-http-parser`.
    insecureHTTPParser: false,
  }
  const server =
    tls === undefined ? createServer(options) : createSecureServer({ ...options, ...tlsOptions(tls, bounds) })
  // Node drops fields beyond this count in silence: with one more than is accepted, the request is refused, and the rest costs little.
  server.maxHeadersCount = MAX_FIELDS + 1

  const report = (socket: Socket, status: number, reason: string, requestId?: string): void =>
    events.unreadable({ peer: socket.remoteAddress ?? '', status, reason: reason.slice(0, 100), requestId })
  const pipelining = createPipelining(
    (request, response, expectsContinue, done) => {
      if (request.rawHeaders.length <= 2 * MAX_FIELDS) return serve(request, response, expectsContinue, done)
      // RFC 6585 section 5.
      const requestId = endWithStatus(request.socket, 431)
      report(request.socket, 431, `more than ${MAX_FIELDS} header fields`, requestId)
      done()
    },
    (socket, max) => report(socket, 400, `more than ${max} pending requests`),
  )
  const sockets = boundSockets(server, bounds, events)
  loads.set(server, { sockets, requests: pipelining.requests })
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    // The peer has reset it, so its address is lost. Node keeps an address once it was read.
    if (socket.remoteAddress === undefined) {
      socket.destroy()
      return
    }
    lingerOnClose(socket)
    // A TLS socket is another one than the socket below it.
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  // RFC 9110 section 10.1.1 lets a server ignore an expectation that it does not know.
  for (const event of ['request', 'checkContinue', 'checkExpectation'])
    server.on(event, (request: IncomingMessage, response: ServerResponse) => {
      // Node drops bytes behind a request that would switch protocols, so that the next one could begin anywhere.
      if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
      pipelining.add(request, response, event === 'checkContinue')
    })
  const refuse = (socket: Socket, status: number, reason: string, fields?: string): void =>
    pipelining.endAfterPending(socket, () => {
      report(socket, status, reason, endWithStatus(socket, status, fields))
    })
  server.on('connect', (_: IncomingMessage, socket: Socket) => {
    // Node has released the socket, on which answers may be in flight.
    socket.on('error', () => {})
    socket.on('drain', () => responseOf(socket)?.emit('drain'))
    refuse(socket, 405, 'CONNECT', `Allow: ${[...METHODS].join(', ')}\r\n`)
  })

  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Socket) => {
    const { code = error.message } = error
    if (!sockets.has(socket)) {
      // In a TLS handshake: no HTTP client is there yet to read an answer. The socket below knows its peer even when that is gone.
      const { _parent } = socket as Socket & { readonly _parent?: Socket }
      const peer = _parent?.remoteAddress ?? ''
      socket.destroy()
      events.insecure(peer, code)
      return
    }
    // What comes behind a last answer is dropped.
    if (!socket.writable) return
    const request = incompleteRequest(socket)
    const refusal = bodyRefusal(code)
    // Node pauses its parser while a caller reads no answers, and yet goes on with what TLS has decrypted: for later.
    if (code === 'HPE_PAUSED' && socket.isPaused()) socket.push(error.rawPacket)
    else if (code === 'ECONNRESET') socket.destroy()
    else if (request !== undefined) abortBody(request, refusal)
    else refuse(socket, refusal.status, code)
  })

  const { readMs = Math.max(bounds.requestTimeoutMs, SLOW_READER_MS) } = bounds
  const closingUnread = resetSlowReaders(sockets, readMs)
  server.once('close', () => clearInterval(closingUnread))
  return server
}

function tlsOptions({ cert, key, clientCa, requestClientCert }: Tls, bounds: Bounds): TlsOptions {
  return {
    cert,
    key,
    // Without authorities of its own, Node would take the public ones for the clients'.
    ca: clientCa ?? [],
    requestCert: clientCa !== undefined || requestClientCert,
    rejectUnauthorized: clientCa !== undefined,
    minVersion: 'TLSv1.2',
    handshakeTimeout: bounds.headersTimeoutMs,
  }
}

/** Shows new connections another certificate; open ones keep theirs. Throws, and changes nothing, if TLS does not take it. */
export function renewCertificate(server: Server, tls: Tls, bounds: Bounds): void {
  if (server instanceof SecureServer) server.setSecureContext(tlsOptions(tls, bounds))
}

/** Listens, and returns the URL; rejects with a message for the operator, in which `key` names the setting. */
export async function listen(server: Server, host: string, port: number, key: string): Promise<string> {
  await once(server.listen(port, host), 'listening').catch(({ code, message }: NodeJS.ErrnoException) => {
    const why = code === 'EADDRINUSE' ? 'is in use' : `cannot be opened: ${message}`
    throw new Error(`${key} ${host}:${port} ${why}; correct ${key}.host or ${key}.port`)
  })
  const { address, family, port: bound } = server.address() as AddressInfo
  const scheme = server instanceof SecureServer ? 'https' : 'http'
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}
