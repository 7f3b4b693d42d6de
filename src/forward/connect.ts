import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Address } from './addresses.ts'

/**
 * Opens a socket, over TLS where `secure`. `done` is told once: when it may be written to, with undefined; or when it never will, with
 * the reason. Names are resolved anew for each socket.
 */
export function connect(
  { host, port }: Address,
  secure: boolean,
  withinMs: number,
  done: (failure: Error | undefined) => void,
): Socket {
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
  const socket = secure
    ? // Node's agent would take the name to verify from the caller's Host.
      connectTls({ ...options, servername: isIP(host) === 0 ? host : '', ALPNProtocols: ['http/1.1'] })
    : connectTcp(options)
  const timer = setTimeout(() => {
    socket.destroy(new Error(`no connection within ${withinMs} ms`))
  }, withinMs)
  let failure: Error | undefined
  let ready = false
  socket.on('error', (error) => (failure = named(error)))
  socket.once(secure ? 'secureConnect' : 'connect', () => {
    ready = true
    clearTimeout(timer)
    done(undefined)
  })
  socket.once('close', () => {
    if (ready) return
    clearTimeout(timer)
    done(failure ?? new Error('closed before it was connected'))
  })
  return socket
}

/** Where a name has several addresses, and none takes the connection, Node's error has no words of its own. */
function named(error: Error): Error {
  if (!(error instanceof AggregateError)) return error
  return new Error(error.errors.map(({ message }: Error) => message).join(', '), { cause: error })
}
