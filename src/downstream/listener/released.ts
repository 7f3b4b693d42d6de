import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { responseOf } from '../../runtime/node-http.ts'
import { lingeringClose } from './sockets.ts'

/** Requests with which Node has released their socket from its parser: handshakes of WebSockets. */
const handshakes = new WeakSet<IncomingMessage>()

/** True for a handshake after which no byte of its socket is parsed as a request. */
export const hasReleasedSocket = (request: IncomingMessage): boolean =>
  request.headers.upgrade !== undefined && handshakes.has(request)

const NOTHING = Buffer.alloc(0)

/** Completes a socket that Node has released, on which responses may be in flight. */
export function superviseReleased(socket: Socket): void {
  socket.on('error', () => {})
  socket.on('drain', () => responseOf(socket)?.emit('drain'))
  // If reading had paused, Node would never begin it again: for its stream, a read is under way,
  // which this ends.
  socket.push(NOTHING)
}

/**
 * While this listens for `readable`, nothing reads from the socket, also if `pipelining` resumes it:
 * what the caller sends waits in its buffer, and then in the kernel.
 */
function hold(): void {}

/** Ends a socket that the caller has ended, as Node does. */
function endToo(this: Socket): void {
  this.end()
}

/**
 * Returns the response to a handshake. Until `readReleased`, the bytes behind it wait. Any response
 * that ends closes the socket, and those bytes are dropped: only a WebSocket keeps it open.
 */
export function respondReleased(
  request: IncomingMessage,
  socket: Socket,
  requestTimeoutMs: number,
): ServerResponse {
  handshakes.add(request)
  const response = new ServerResponse(request)
  response.shouldKeepAlive = false
  socket.destroySoon = () => {
    readReleased(socket)
    lingeringClose(socket, requestTimeoutMs)
  }
  response.on('finish', () => {
    response.detachSocket(socket)
    socket.destroySoon()
    process.nextTick(() => response.emit('close'))
  })
  return response
}

/** Makes the bytes that follow a handshake wait; `head` are the first of them. */
export function holdReleased(socket: Socket, head: Buffer): void {
  socket.unshift(head)
  socket.on('readable', hold)
  socket.once('end', endToo)
}

/** Lets the bytes behind a handshake be read. */
export function readReleased(socket: Socket): void {
  socket.off('readable', hold)
  socket.off('end', endToo)
  socket.resume()
}
