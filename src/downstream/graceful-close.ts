import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { requestComing } from './body.ts'

/**
 * How many milliseconds a caller that seems to read nothing of its answer is given. A system does not report each byte that was read: Linux does when
 * about 1.4 of the 4 MB that it may hold are free again, and a caller's may ask for more by the megabyte. This is the time for 4 MB at 20 kB a second.
 */
export const READ_MS = 200_000

const LINGER_MS = 2000

/**
 * Ends a socket after its last answer: what its peer still sends is read and dropped for a moment, since a reset could overtake
 * the answer, and then the socket is closed, whether the peer has closed its side or not (RFC 9112 section 9.6).
 */
function endGently(socket: Socket, last = ''): void {
  socket.end(last)
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref()
  socket.once('close', () => clearTimeout(timer))
}

/** Makes Node end an HTTP socket gently after its last answer if the request is still coming. */
export function lingerOnClose(socket: Socket): void {
  const { destroySoon } = socket
  socket.destroySoon = () =>
    requestComing(socket) === undefined ? destroySoon.call(socket) : endGently(socket)
}

/** Ends a socket whose request never became one with a bare status line. */
export function endWithStatus(socket: Socket, status: number, fields = ''): void {
  endGently(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]!}\r\n${fields}Connection: close\r\nContent-Length: 0\r\n\r\n`,
  )
}
