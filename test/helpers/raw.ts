import { connect, type Socket } from 'node:net'
import { until } from './wait.ts'

export interface RawAnswer {
  /** All bytes received until the peer closed, or until `isComplete` returned true. */
  readonly text: string
  /** True if the peer closed the socket. */
  readonly closed: boolean
}

/** Sends bytes over a bare socket. Returns the received bytes when the socket closes, `isComplete` returns true, or 5 s have passed. */
export function raw(
  port: number,
  bytes: string | Buffer,
  isComplete?: (text: string) => boolean,
): Promise<RawAnswer> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1')
    let text = ''
    let finished = false
    const finish = (closed: boolean): void => {
      if (finished) return
      finished = true
      clearTimeout(timer)
      socket.destroy()
      resolve({ text, closed })
    }
    const timer = setTimeout(() => finish(false), 5000)
    socket.on('connect', () => socket.write(bytes))
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      // Wait a little longer for unexpected responses.
      if (isComplete?.(text) === true) setTimeout(finish, 30, false)
    })
    socket.on('close', () => finish(true))
    socket.on('error', () => {})
  })
}

/**
 * Sends a GET over an open connection, and returns the response with its status, which is undefined
 * if the peer closes the connection.
 */
export async function askOver(socket: Socket): Promise<{ status: number | undefined; text: string }> {
  let text = ''
  const hear = (chunk: Buffer) => (text += chunk.toString())
  socket.on('data', hear)
  socket.write('GET /oidc/x HTTP/1.1\r\nHost: a\r\n\r\n')
  await until('an answer', () => answered(text) || socket.destroyed)
  socket.off('data', hear)
  return { status: statuses(text)[0], text }
}

/** True if the head of the first response is complete. */
export const answered = (text: string): boolean => /^HTTP\/1\.1 [2-5].*\r\n\r\n/s.test(text)

/** Returns the status codes of the responses in a string, in order. */
export function statuses(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]))
}
