import type { ClientRequest, OutgoingMessage } from 'node:http'
import { createServer, IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'

/**
 * Private parts of Node's http that the gateway uses, tested on Node 20, 22, 24 and 26: `_header`
 * is the rendered head of a message until it is sent, `_httpMessage` the message that a socket
 * carries, `parser` the parser that reads from it, with the request whose body it expects,
 * `_parent` the socket under TLS, `upgrade` true for a request that switches protocols. Without
 * them, responses would lack their fields, errors their responses and addresses, and dropped bytes
 * would be parsed.
 */
type PrivateMessage = OutgoingMessage & { _header: string }
type PrivateRequest = IncomingMessage & { upgrade: boolean | null }
type PrivateSocket = Socket & {
  _httpMessage?: ServerResponse | null
  parser?: {
    onIncoming: (request: PrivateRequest, keepAlive: boolean) => number
    readonly incoming: IncomingMessage | null
  } | null
  _parent?: Socket | null
}

/** Throws if this version of Node.js has no such parts: the gateway must not start on it. */
export function assertPrivateParts(): void {
  const socket = new Socket() as PrivateSocket
  const response = new ServerResponse(new IncomingMessage(socket))
  response.assignSocket(socket)
  response.writeHead(200, ['Content-Length', '0'])
  const head: unknown = (response as unknown as PrivateMessage)._header
  const isText = typeof head === 'string' && /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\n$/.test(head)
  const isCarried = socket._httpMessage === response
  createServer().emit('connection', socket)
  const isParsed = typeof socket.parser?.onIncoming === 'function' && socket.parser.incoming === null
  socket.destroy()
  if (isText && isCarried && isParsed && socket._parent === null) return
  throw new Error(`Node.js ${process.version} is not supported; use Node.js 20, 22, 24 or 26.`)
}

/**
 * Adds fields, as text, to a rendered head: each `\r\nName: value`. Node.js would check each again
 * for invalid characters: +0.4 us; `npm run bench:micro -- response-head`. Not for fields by which
 * Node.js frames the message: `Connection`, `Content-Length`, `Date`.
 */
export function appendFields(message: OutgoingMessage, fields: string): void {
  const rendered = message as PrivateMessage
  rendered._header = `${rendered._header.slice(0, -4)}${fields}\r\n\r\n`
}

/**
 * Completes the head of a request, which Node.js has rendered with the fields that frame the body:
 * the target, which http-proxy rewrites, and the other fields, as text for `appendFields`.
 */
export function completeHead(request: ClientRequest, target: string, fields: string): void {
  const rendered = request as unknown as PrivateMessage
  const framing = rendered._header.slice(rendered._header.indexOf('\r\n'))
  rendered._header = `${request.method} ${target} HTTP/1.1${fields}${framing}`
}

/**
 * Ends a message with its whole Latin-1 body, in one write as part of the head. `end(body)`: +2.6 %
 * processor time (`npm run bench:gate`).
 */
export function endWithBody(message: OutgoingMessage, body: string): void {
  ;(message as PrivateMessage)._header += body
  message.end()
}

/** Returns the response that a caller's socket carries. */
export const responseOf = (socket: Socket) => (socket as PrivateSocket)._httpMessage

/** Returns the socket under a TLS socket. */
export const socketUnderTls = (socket: Socket): Socket | null | undefined => (socket as PrivateSocket)._parent

/** Returns the address of a failed TLS handshake's peer, which the socket under it has even after a reset. */
export const peerOfHandshake = (socket: Socket): string => socketUnderTls(socket)?.remoteAddress ?? ''

/** Separates an idle socket from its last request, as `http.Agent` does. */
export function detachMessage(socket: Socket): void {
  ;(socket as PrivateSocket)._httpMessage = null
}

/** Returns the request of a caller's socket whose body has not arrived in full. */
export function incompleteRequest(socket: Socket): IncomingMessage | undefined {
  const { parser } = socket as PrivateSocket
  return parser?.incoming?.complete === false ? parser.incoming : undefined
}

/**
 * Makes Node's parser drop the bytes that it has read, which it would parse even after `destroy`:
 * for it, the next request switches protocols (2), which is not reported.
 */
export function stopParsing(socket: Socket): void {
  const { parser } = socket as PrivateSocket
  if (!parser) return
  parser.onIncoming = (request) => {
    request.upgrade = false
    return 2
  }
}

/**
 * Makes Node emit `upgrade` only for the requests that `accepts` accepts, and `request` for others
 * that ask to switch protocols. Node 20 has no `shouldUpgradeCallback`, and would take the body of
 * such a request for bytes of the other protocol.
 */
export function acceptUpgrades(socket: Socket, accepts: (request: IncomingMessage) => boolean): void {
  const { parser } = socket as PrivateSocket
  if (!parser) return
  const { onIncoming } = parser
  parser.onIncoming = (request, keepAlive) => {
    if (request.upgrade === true && request.method !== 'CONNECT') request.upgrade = accepts(request)
    return onIncoming(request, keepAlive)
  }
}
