import { type NetConnectOpts, Socket } from 'node:net'

/** Maximum time that a server has to say why it closes a new connection, in milliseconds. */
const MAX_MS = 500
/** Maximum length of the answer that is shown. */
const MAX_LENGTH = 200

/**
 * Returns the error that a server sends to a new connection before it closes it, such as `ERR max
 * number of clients reached`; undefined if there is none. ioredis writes at once, so that the system
 * drops this answer with the connection.
 */
export function firstWord(address: {
  readonly path?: string
  readonly host?: string
  readonly port?: number
}): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = new Socket({ signal: AbortSignal.timeout(MAX_MS) }).connect(address as NetConnectOpts)
    function end(said = ''): void {
      socket.destroy()
      resolve(/^-([^\r\n]+)/.exec(said)?.[1]?.slice(0, MAX_LENGTH))
    }
    // An answer of so few bytes comes at once.
    socket.setEncoding('utf8').once('data', end)
    socket.on('error', () => end()).on('end', end)
  })
}
