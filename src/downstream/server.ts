import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer, Server as SecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TlsOptions } from 'node:tls'
import { breakOff, brokenBody, requestComing } from './body.ts'
import { boundSockets, type ConnectionPolicy, type SocketBounds } from './connection-limits.ts'
import { type Load, loads } from './drain.ts'
import { abandon, endWithStatus, lingerOnClose, READ_MS } from './graceful-close.ts'
import { createPipelining, responseOf, type Serve } from './pipelining.ts'
import { METHODS } from './router.ts'

/** The bounds of the callers' listener; milliseconds and bytes. */
export interface Bounds extends SocketBounds {
  readonly maxHeaderSize: number
  readonly headersTimeoutMs: number
  readonly requestTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** How long a caller that seems to read nothing of a whole answer is given at least; default `READ_MS`. */
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

export interface ListenerEvents extends ConnectionPolicy {
  /** Called with bytes that are no request, after they were answered. */
  unreadable(what: { readonly peer: string; readonly status: number; readonly reason: string }): void
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
  }
  const server =
    tls === undefined ? createServer(options) : createSecureServer({ ...options, ...tlsOptions(tls, bounds) })
  // Node would drop the fields beyond a count in silence.
  server.maxHeadersCount = 0

  const report = (socket: Socket, status: number, reason: string): void =>
    events.unreadable({ peer: socket.remoteAddress ?? '', status, reason: reason.slice(0, 100) })
  const pipelining = createPipelining(
    (request, response, expectsContinue) =>
      request.rawHeaders.length > 2 * MAX_FIELDS
        ? refuseFields(request, response)
        : serve(request, response, expectsContinue),
    (socket, max) => {
      report(socket, 400, `more than ${max} requests at a time`)
      socket.destroy()
    },
  )
  const open = boundSockets(server, bounds, events)
  const load: Load = { open, idle: new Set(), http: new Set(), pipelining }
  loads.set(server, load)
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    load.idle.add(socket)
    load.http.add(socket)
    socket.once('close', () => {
      load.idle.delete(socket)
      load.http.delete(socket)
    })
  })
  const onRequest = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    load.idle.delete(request.socket)
    // Node drops bytes behind a request that would switch protocols, so that the next one could begin anywhere.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    pipelining.add(request, response, expectsContinue)
  }
  server.on('request', (request, response) => onRequest(request, response, false))
  server.on('checkContinue', (request, response) => onRequest(request, response, true))
  // RFC 9110 section 10.1.1 lets a server ignore an expectation that it does not know.
  server.on('checkExpectation', (request, response) => onRequest(request, response, false))
  server.on('connect', (_: IncomingMessage, socket: Socket) => {
    // Node has released the socket, on which answers may be under way.
    socket.on('error', () => {})
    socket.on('drain', () => responseOf(socket)?.emit('drain'))
    pipelining.afterPending(socket, () => {
      endWithStatus(socket, 405, `Allow: ${[...METHODS].join(', ')}\r\n`)
      report(socket, 405, 'CONNECT')
    })
  })

  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Socket) => {
    const { code = error.message } = error
    if (tls !== undefined && !load.http.has(socket)) {
      // No HTTP client is there yet to read an answer.
      const peer = socketBelow(socket).remoteAddress ?? ''
      socket.destroy()
      events.insecure(peer, code)
      return
    }
    // What comes behind a last answer is dropped.
    if (!socket.writable) return
    // Node pauses its parser while a caller reads no answers, and yet goes on with what TLS has decrypted: for later.
    if (code === 'HPE_PAUSED' && socket.isPaused()) {
      socket.push(error.rawPacket)
      return
    }
    const request = requestComing(socket)
    const refusal = brokenBody(code)
    if (code === 'ECONNRESET') socket.destroy()
    else if (request !== undefined) breakOff(request, refusal)
    // Garbage behind whole requests.
    else if (responseOf(socket) !== undefined) pipelining.endAfterPending(socket)
    else {
      endWithStatus(socket, refusal.status)
      report(socket, refusal.status, code)
    }
  })

  // A caller that reads nothing of a whole answer times out; one that waits for an upstream, or is given its answer, does not.
  server.timeout = Math.max(bounds.requestTimeoutMs, bounds.readMs ?? READ_MS)
  server.on('timeout', (socket: Socket) => {
    const response = responseOf(socket)
    if (response === undefined) socket.destroy()
    else if (response.writableEnded && socket.writableLength > 0) abandon(socket)
  })

  /** RFC 6585 section 5. */
  async function refuseFields({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
    lingerOnClose(socket)
    response.on('error', () => {})
    response.writeHead(431, { Connection: 'close', 'Content-Length': 0 }).end()
    report(socket, 431, `more than ${MAX_FIELDS} header fields`)
    await new Promise((resolve) => response.once('close', resolve))
  }
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

/** The socket below a TLS socket, which knows its peer's address even when that is gone. */
function socketBelow(socket: Socket): Socket {
  return (socket as Socket & { readonly _parent?: Socket })._parent ?? socket
}

/** Listens, and returns the URL; rejects with a message for the operator, in which `key` names the setting. */
export async function listen(server: Server, host: string, port: number, key: string): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', ({ code = '', message }: NodeJS.ErrnoException) => {
      const why = LISTEN_ERRORS[code]?.replaceAll('KEY', key) ?? ` cannot be opened: ${message}`
      reject(new Error(`${key} ${host}:${port}${why}`))
    })
    server.listen(port, host, resolve)
  })
  const { address, family, port: bound } = server.address() as AddressInfo
  const scheme = server instanceof SecureServer ? 'https' : 'http'
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}

const NO_ADDRESS = ': this machine has no such address; correct KEY.host'
const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: ' is in use; stop what listens there or choose another KEY.port',
  EACCES: ' may not be opened; choose a KEY.port above 1023 or grant the right',
  EADDRNOTAVAIL: NO_ADDRESS,
  ENOTFOUND: NO_ADDRESS,
}
