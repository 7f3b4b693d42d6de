import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http'
import { createServer as createSecureServer, Server as SecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TlsOptions } from 'node:tls'
import { breakOff } from './body.ts'
import { type Load, loads } from './drain.ts'
import { type ErrorCode, Refusal } from '../errors.ts'
import { endGently, lingerOnClose } from './graceful-close.ts'
import { READ_MS } from './slow-reader.ts'
import { METHODS } from './router.ts'
import { boundSockets, type SocketBounds, type Turnstile } from './connection-limits.ts'
import { createTurns, type Serve, underWay } from './pipelining.ts'

/** The bounds of the callers' listener; milliseconds and bytes. */
export interface Bounds extends SocketBounds {
  readonly maxHeaderSize: number
  readonly headersTimeoutMs: number
  readonly requestTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** How long a caller that seems to take nothing of a whole answer is given at least; default `READ_MS`. */
  readonly readMs?: number
}

/** PEM texts, and whether callers are asked for certificates. */
export interface Tls {
  readonly cert: string
  readonly key: string
  /** Whoever shows no certificate of one of these authorities cannot connect. */
  readonly clientCa: string | undefined
  readonly requestClientCert: boolean
}

/** A request that never became one: what was wrong, and what it was answered. */
export interface Unreadable {
  readonly peer: string
  readonly status: number
  readonly reason: string
}

export interface ListenerEvents extends Turnstile {
  /** Told of bytes that are no request, after they were answered. */
  unreadable(what: Unreadable): void
  /** Told of each TLS handshake that failed, with its peer and the reason. */
  insecure(peer: string, reason: string): void
}

/** How often Node looks for sockets that are over their time. */
const CHECK_MS = 1000

/** The callers' HTTP server, or HTTPS with `tls`. What is no HTTP is answered here and never reaches `serve`. */
export function createListener(serve: Serve, bounds: Bounds, events: ListenerEvents, tls?: Tls): Server {
  const options = {
    maxHeaderSize: bounds.maxHeaderSize,
    headersTimeout: bounds.headersTimeoutMs,
    requestTimeout: bounds.requestTimeoutMs,
    keepAliveTimeout: bounds.keepAliveTimeoutMs,
    connectionsCheckingInterval: CHECK_MS,
    // The gateway says itself what is wrong with the Host field.
    requireHostHeader: false,
    noDelay: true,
  }
  const server =
    tls === undefined ? createServer(options) : createSecureServer({ ...options, ...secure(tls, bounds) })
  // Node would drop the fields beyond a count in silence.
  server.maxHeadersCount = 0

  const turns = createTurns(
    (request, response, expectsContinue) =>
      request.rawHeaders.length > 2 * MOST_FIELDS
        ? refuseFields(request, response)
        : serve(request, response, expectsContinue),
    (socket, most) => {
      const peer = socket.remoteAddress ?? ''
      events.unreadable({ peer, status: 400, reason: `more than ${most} requests at a time` })
      socket.destroy()
    },
  )
  const load: Load = {
    open: boundSockets(server, bounds, events),
    quiet: new Set(),
    speaking: new Set(),
    turns,
  }
  loads.set(server, load)
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    load.quiet.add(socket)
    load.speaking.add(socket)
    socket.once('close', () => {
      load.quiet.delete(socket)
      load.speaking.delete(socket)
    })
  })
  const inTurn = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    load.quiet.delete(request.socket)
    // Node drops bytes behind a request that would switch protocols, so that the next one could begin anywhere.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    turns.take(request, response, expectsContinue)
  }
  server.on('request', (request, response) => inTurn(request, response, false))
  server.on('checkContinue', (request, response) => inTurn(request, response, true))
  // RFC 9110 section 10.1.1 lets a server pass over an expectation that it does not know.
  server.on('checkExpectation', (request, response) => inTurn(request, response, false))
  server.on('connect', (_: IncomingMessage, socket: Socket) => {
    // Node has let go of the socket, on which answers may be under way.
    socket.on('error', () => {})
    socket.on('drain', () => underWay(socket)?.emit('drain'))
    turns.behind(socket, () => refuse(socket, 405, 'CONNECT'))
  })
  const secured = new WeakSet<Socket>()
  server.on('secureConnection', (socket: Socket) => secured.add(socket))
  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Socket) => {
    if (tls !== undefined && !secured.has(socket)) {
      // Nobody is there yet who could read an answer.
      const peer = beneath(socket).remoteAddress ?? ''
      socket.destroy()
      events.insecure(peer, error.code ?? error.message)
      return
    }
    // What comes behind a last answer is dropped.
    if (!socket.writable) return
    // Node pauses its parser while a caller takes no answers, and yet goes on with what TLS has decrypted: for later.
    if (error.code === 'HPE_PAUSED' && socket.isPaused()) {
      socket.push(error.rawPacket)
      return
    }
    const response = underWay(socket)
    const request = coming(socket)
    if (error.code === 'ECONNRESET') socket.destroy()
    else if (request !== undefined) breakOff(request, breakOf(error.code))
    else if (response === undefined) refuse(socket, breakOf(error.code).status, error.code ?? error.message)
    // What came behind whole requests is none.
    else turns.endAfter(socket)
  })

  // Whoever takes nothing of a whole answer is given up; one that waits for an upstream, or is given its answer, is not silent.
  server.timeout = Math.max(bounds.requestTimeoutMs, bounds.readMs ?? READ_MS)
  server.on('timeout', (socket: Socket) => {
    const response = underWay(socket)
    if (response === undefined) socket.destroy()
    else if (response.writableEnded && socket.writableLength > 0) abandon(socket)
  })

  function refuse(socket: Socket, status: number, reason: string): void {
    answer(socket, status)
    events.unreadable({ peer: socket.remoteAddress ?? '', status, reason: reason.slice(0, 100) })
  }

  /** RFC 6585 section 5. */
  async function refuseFields({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
    lingerOnClose(socket)
    response.on('error', () => {})
    response.writeHead(431, { Connection: 'close', 'Content-Length': 0 }).end()
    const reason = `more than ${MOST_FIELDS} header fields`
    events.unreadable({ peer: socket.remoteAddress ?? '', status: 431, reason })
    await new Promise((resolve) => response.once('close', resolve))
  }
  return server
}

function secure({ cert, key, clientCa, requestClientCert }: Tls, { headersTimeoutMs }: Bounds): TlsOptions {
  return {
    cert,
    key,
    // Without authorities of its own, Node would take the public ones for the clients'.
    ca: clientCa ?? [],
    requestCert: clientCa !== undefined || requestClientCert,
    rejectUnauthorized: clientCa !== undefined,
    minVersion: 'TLSv1.2',
    handshakeTimeout: headersTimeoutMs,
  }
}

/** Shows new connections another certificate; the open ones go on. Throws, and changes nothing, where TLS takes none of it. */
export function renewCertificate(server: Server, tls: Tls, bounds: Bounds): void {
  if (server instanceof SecureServer) server.setSecureContext(secure(tls, bounds))
}

/** Most header fields of a request: each costs more than its bytes, of which the smallest has few. */
const MOST_FIELDS = 200

const BREAKS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: ['HeaderFieldsTooLarge', 'The trailers of the request are too large.'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [
    'PayloadTooLarge',
    'The chunk extensions of the request body are too large.',
  ],
  ERR_HTTP_REQUEST_TIMEOUT: ['RequestTimeout', 'The request did not come to its end in time.'],
}

/** Ends a socket at once, with all that its peer did not read: the system would keep that for minutes after an orderly end. */
function abandon(socket: Socket): void {
  // Of TLS, Node can end nothing but the whole in order.
  if ('encrypted' in socket) socket.destroy()
  else socket.resetAndDestroy()
}

/** The socket that TLS is spoken on, which knows its peer's address even when that is gone. */
function beneath(socket: Socket): Socket {
  return (socket as Socket & { readonly _parent?: Socket })._parent ?? socket
}

/** The request of a socket whose body is still coming, if any. */
function coming(socket: Socket): IncomingMessage | undefined {
  const { parser } = socket as Socket & { parser?: { incoming: IncomingMessage | null } | null }
  return parser?.incoming?.complete === false ? parser.incoming : undefined
}

/** What a caller is told of a body that will not come to its end. The rest of it must not be taken for the next request. */
function breakOf(cause = ''): Refusal {
  const [code, message] = BREAKS[cause] ?? ['BadRequest', 'The request body broke off, or is malformed.']
  return new Refusal(code, message, { cause, headers: { Connection: 'close' } })
}

function answer(socket: Socket, status: number): void {
  const allow = status === 405 ? `Allow: ${[...METHODS].join(', ')}\r\n` : ''
  endGently(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]!}\r\n${allow}Connection: close\r\nContent-Length: 0\r\n\r\n`,
  )
}

/** Listens, and tells where; rejects with words for the operator. */
export function listen(server: Server, host: string, port: number, key: string): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(new Error(listenError(error, host, port, key))),
    )
    server.listen(port, host, () => {
      const { address, family, port: bound } = server.address() as AddressInfo
      const scheme = server instanceof SecureServer ? 'https' : 'http'
      resolve(`${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${bound}`)
    })
  })
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number, key: string): string {
  const where = `${key} ${host}:${port}`
  if (error.code === 'EADDRINUSE')
    return `${where} is in use; stop what listens there or choose another ${key}.port`
  if (error.code === 'EACCES')
    return `${where} may not be opened; choose a ${key}.port above 1023 or grant the right`
  if (error.code === 'EADDRNOTAVAIL' || error.code === 'ENOTFOUND') {
    return `${where}: this machine has no such address; correct ${key}.host`
  }
  return `${where} cannot be opened: ${error.message}`
}
