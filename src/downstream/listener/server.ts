import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer, Server as SecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { acceptUpgrades, incompleteRequest, peerOfHandshake } from '../../runtime/node-http.ts'
import { abortBody, bodyRefusal } from '../body.ts'
import { loads } from './drain.ts'
import { inheritHeader } from './proxied.ts'
import { createPipelining, type Serve } from './pipelining.ts'
import { METHODS } from '../pattern.ts'
import { isHandshake } from '../websocket.ts'
import { holdReleased, respondReleased, superviseReleased } from './released.ts'
import { abortSlowUploads } from './slow-uploads.ts'
import {
  boundSockets,
  type ConnectionPolicy,
  endWithStatus,
  lingerOnClose,
  resetSlowReaders,
  type SocketBounds,
} from './sockets.ts'
import { type ListenerTls, tlsOptions } from './tls.ts'

/** Bounds of the callers' listener, in milliseconds and bytes. */
export interface Bounds extends SocketBounds {
  readonly maxHeaderSize: number
  /** Maximum time between the bytes of a body. */
  readonly requestTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** Default: `SLOW_READER_MS`, or the request timeout if that is longer. */
  readonly slowReaderMs?: number
  /** Default: `SLOW_UPLOAD_MS`, or the request timeout if that is longer. */
  readonly slowUploadMs?: number
}

export interface ListenerEvents extends ConnectionPolicy {
  idField(): string
  /** Called for invalid HTTP, after the response, if any. */
  unreadable(peer: string, status: number, reason: string, requestId: string | undefined): void
  insecure(peer: string, reason: string): void
}

/**
 * Timeout of a caller that appears to read nothing, in milliseconds: 4 MB at 20 kB/s. Linux reports
 * progress only after about 1.4 of its 4 MB send buffer are free, and the caller's system may
 * request it by the megabyte.
 */
const SLOW_READER_MS = 200_000

/** Time after which a body must have an average rate, in milliseconds. */
const SLOW_UPLOAD_MS = 60_000

/** Maximum header fields of a request: each costs more than its bytes. */
const MAX_FIELDS = 200

/**
 * Creates the callers' HTTP server, or HTTPS server if `tls` is given. Answers invalid HTTP itself;
 * only valid requests reach `serve`.
 */
export function createListener(serve: Serve, bounds: Bounds, events: ListenerEvents, tls?: ListenerTls) {
  const options = optionsOf(bounds)
  const server = tls ? createSecureServer({ ...options, ...tlsOptions(tls) }) : createServer(options)
  // Node silently drops fields beyond this count. One more than is accepted shows that there are too many.
  server.maxHeadersCount = MAX_FIELDS + 1

  const report = (socket: Socket, status: number, reason: string, requestId?: string): void =>
    events.unreadable(socket.remoteAddress ?? '', status, reason.slice(0, 100), requestId)
  const pipelining = createPipelining((socket, max) =>
    report(socket, 400, `more than ${max} pending requests`),
  )
  const refuse = (socket: Socket, status: number, reason: string, fields?: string): void =>
    pipelining.add(socket, (done) => {
      const response = { status, idField: events.idField(), fields }
      report(socket, status, reason, endWithStatus(socket, bounds.requestTimeoutMs, response))
      done()
    })

  const sockets = boundSockets(server, bounds, events)
  loads.set(server, { sockets, requests: pipelining.requests })
  const { requestTimeoutMs } = bounds
  const slowReaderMs = bounds.slowReaderMs ?? Math.max(requestTimeoutMs, SLOW_READER_MS)
  const slowUploadMs = bounds.slowUploadMs ?? Math.max(requestTimeoutMs, SLOW_UPLOAD_MS)
  const timers = [
    resetSlowReaders(sockets, slowReaderMs),
    abortSlowUploads(sockets, requestTimeoutMs, slowUploadMs),
  ]
  server.once('close', () => timers.forEach(clearInterval))

  function onSocket(socket: Socket): void {
    inheritHeader(socket)
    // Reading the address makes Node keep it; it is undefined if the peer has reset the socket already.
    if (socket.remoteAddress === undefined) {
      socket.destroy()
      return
    }
    lingerOnClose(socket, bounds.requestTimeoutMs)
    acceptUpgrades(socket, isHandshake)
    // A TLS socket wraps the socket that `boundSockets` added.
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  }

  /** Refuses a request with too many fields (RFC 6585 section 5); returns false for another. */
  function refuseFields({ rawHeaders, socket }: IncomingMessage): boolean {
    if (rawHeaders.length <= 2 * MAX_FIELDS) return false
    refuse(socket, 431, `more than ${MAX_FIELDS} header fields`)
    return true
  }

  function onRequest(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    if (refuseFields(request)) return
    // Node drops bytes after a request with Upgrade, so that the next one could start anywhere.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    pipelining.add(request.socket, (done) => serve(response, expectsContinue, done))
  }

  /** Serves the handshake of a WebSocket, with which Node releases the socket from its parser. */
  function onUpgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    superviseReleased(socket)
    if (refuseFields(request)) return
    holdReleased(socket, head)
    const response = respondReleased(request, socket, requestTimeoutMs)
    pipelining.add(socket, (done) => {
      response.assignSocket(socket)
      serve(response, false, done)
    })
  }

  function onConnect(_: IncomingMessage, socket: Socket): void {
    superviseReleased(socket)
    refuse(socket, 405, 'CONNECT', `Allow: ${[...METHODS].join(', ')}\r\n`)
  }

  /** Ends a socket with a failed TLS handshake, with invalid HTTP, or that its caller has reset. */
  function onClientError(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Socket): void {
    const { code = error.message } = error
    if (!sockets.has(socket)) {
      const peer = peerOfHandshake(socket)
      socket.destroy()
      return events.insecure(peer, certificateError(socket) ?? code)
    }
    // Bytes after a last response are dropped.
    if (!socket.writable) return
    const request = incompleteRequest(socket)
    const refusal = bodyRefusal(code)
    // While a caller does not read its responses, Node pauses the parser, but TLS still delivers
    // bytes: push them back for later.
    if (code === 'HPE_PAUSED' && socket.isPaused()) socket.push(error.rawPacket)
    else if (code === 'ECONNRESET') socket.destroy()
    else if (request !== undefined) abortBody(request, refusal)
    else refuse(socket, refusal.status, code)
  }

  server.on(tls === undefined ? 'connection' : 'secureConnection', onSocket)
  server.on('request', (request, response) => onRequest(request, response, false))
  server.on('checkContinue', (request, response) => onRequest(request, response, true))
  // RFC 9110 section 10.1.1 allows a server to ignore an unknown expectation.
  server.on('checkExpectation', (request, response) => onRequest(request, response, false))
  server.on('upgrade', onUpgrade)
  server.on('connect', onConnect)
  server.on('clientError', onClientError)
  return server
}

/** Returns the options of Node's server. */
function optionsOf({ maxHeaderSize, headersTimeoutMs, keepAliveTimeoutMs }: Bounds) {
  return {
    maxHeaderSize,
    headersTimeout: headersTimeoutMs,
    // `abortSlowUploads` applies to bodies: Node's timeout would also cut uploads at a usual rate.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveTimeoutMs,
    handshakeTimeout: headersTimeoutMs,
    connectionsCheckingInterval: 1000,
    // `parseTarget` refuses a missing Host field.
    requireHostHeader: false,
    noDelay: true,
    // Overrides `--insecure-http-parser`.
    insecureHTTPParser: false,
  }
}

/** Returns why OpenSSL did not accept a caller's certificate, such as `CERT_REVOKED`; Node.js reports only a reset. */
function certificateError(socket: Socket): string | undefined {
  // Node declares an Error, and sets its code.
  const error = socket instanceof TLSSocket ? (socket.authorizationError as unknown) : undefined
  return typeof error === 'string' ? error : undefined
}

/** Replaces the TLS settings for new connections. Throws, and changes nothing, if it is invalid. */
export function renewCertificate(server: Server, tls: ListenerTls): void {
  if (server instanceof SecureServer) server.setSecureContext(tlsOptions(tls))
}

/** Listens, and returns the URL; rejects with a message for the operator, in which `key` names the setting. */
export async function listen(server: Server, host: string, port: number, key: string) {
  await once(server.listen(port, host), 'listening').catch((error: NodeJS.ErrnoException) => {
    const isUsed = error.code === 'EADDRINUSE'
    const why = isUsed ? 'is in use, perhaps by another gateway' : `cannot be opened: ${error.message}`
    const remedy = isUsed ? 'stop that program, or change' : 'correct'
    throw new Error(`${key} ${host}:${port} ${why}; ${remedy} ${key}.host or ${key}.port`)
  })
  const { address, family, port: bound } = server.address() as AddressInfo
  const scheme = server instanceof SecureServer ? 'https' : 'http'
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}
