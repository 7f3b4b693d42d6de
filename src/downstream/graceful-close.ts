import type { Socket } from 'node:net'

const LINGER_MS = 2000

/**
 * How many milliseconds a caller that seems to take nothing of its answer is given. A system does not tell of each byte that was read: Linux does when
 * about 1.4 of the 4 MB that it may hold are free again, and a caller's may ask for more by the megabyte. This is the time for 4 MB at 20 kB a second.
 */
export const READ_MS = 200_000

/**
 * Ends a socket after its last answer: what the far end still sends is read and dropped for a moment, lest a reset overtake the
 * answer, and then the socket is closed, whether the far end has closed its side or not.
 */
export function endGently(socket: Socket, lastWords = ''): void {
  socket.on('error', () => {})
  socket.end(lastWords)
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('end', () => socket.destroy())
  socket.once('close', () => clearTimeout(timer))
}

/** Lets Node end this socket gently after the answer under way. */
export function lingerOnClose(socket: Socket): void {
  socket.destroySoon = () => endGently(socket)
}
