import { connect, type Socket } from 'node:net'

export interface RawAnswer {
  /** Everything that came back until the far end closed, or until `until` was satisfied. */
  readonly text: string
  /** Did the far end close the socket? */
  readonly closed: boolean
}

/** Sends bytes over a bare socket and gathers what comes back until it closes, `until` holds, or 5 s have passed. */
export function raw(
  port: number,
  bytes: string | Buffer,
  until?: (text: string) => boolean,
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
      // A little longer, for answers that should not come.
      if (until?.(text) === true) setTimeout(finish, 30, false)
    })
    socket.on('close', () => finish(true))
    socket.on('error', () => {})
  })
}

/** Has a first answer's head come? */
export const answered = (text: string): boolean => /^HTTP\/1\.1 [2-5].*\r\n\r\n/s.test(text)

/** The status codes of the answers in a raw text, in their order. */
export function statuses(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]))
}
