import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, createSecureContext } from 'node:tls'
import type { Address } from './addresses.ts'

/** PEM texts, and the name that the certificate of the far end must bear. */
export interface Tls {
  readonly ca: string | undefined
  readonly servername: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/** What the TLS connections to an upstream have in common, made once. */
export function secureOptions({ ca, servername, cert, key }: Partial<Tls> = {}): ConnectionOptions {
  return {
    secureContext: createSecureContext({ ca, cert, key, minVersion: 'TLSv1.2' }),
    ...(servername !== undefined && { servername }),
    ALPNProtocols: ['http/1.1'],
    // Not even NODE_TLS_REJECT_UNAUTHORIZED=0 lets an upstream go unverified.
    rejectUnauthorized: true,
  }
}

/**
 * Opens a socket, over TLS with `secure`. `done` is told once: when it may be written to, with undefined; or when it never will, with
 * the reason. Names are resolved anew for each socket.
 */
export function connect(
  { host, port }: Address,
  secure: ConnectionOptions | undefined,
  withinMs: number,
  done: (failure: Error | undefined) => void,
): Socket {
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
  const socket =
    secure === undefined
      ? connectTcp(options)
      : // Node's agent would take the name to verify from the caller's Host.
        connectTls({ servername: isIP(host) === 0 ? host : '', ...options, ...secure })
  const timer = setTimeout(() => {
    socket.destroy(new Error(`no connection within ${withinMs} ms`))
  }, withinMs)
  let failure: Error | undefined
  let ready = false
  socket.on('error', (error) => (failure = named(error)))
  socket.once(secure !== undefined ? 'secureConnect' : 'connect', () => {
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
