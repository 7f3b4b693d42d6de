import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, TLSSocket } from 'node:tls'
import type { Address } from './addresses.ts'

/** PEM texts, and the name that the certificate of the upstream must bear. */
export interface Tls {
  readonly ca: string | undefined
  readonly servername: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/**
 * Opens a socket to an address. `done` is called once: with undefined when the socket is connected, or with the reason why it
 * never will be; `again` is true if only an offered TLS session was refused, so that another socket may succeed.
 */
export type Connect = (address: Address, done: (failure: Error | undefined, again: boolean) => void) => Socket

/** Opens sockets within `timeoutMs` each, over TLS if `tls` is given. Host names are resolved anew for each. */
export function createConnect(timeoutMs: number, tls: Partial<Tls> | undefined): Connect {
  const sessions = createTlsSessions()
  const secure = tls && {
    secureContext: createSecureContext({ ca: tls.ca, cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2' }),
    ALPNProtocols: ['http/1.1'],
    // Not even NODE_TLS_REJECT_UNAUTHORIZED=0 lets an upstream go unverified.
    rejectUnauthorized: true,
  }
  return (address, done) => {
    const { host, port } = address
    const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
    const session = secure && sessions.get(address)
    // Node's agent would take the name to verify from the caller's Host.
    const servername = tls?.servername ?? (isIP(host) === 0 ? host : '')
    const socket = secure ? connectTls({ ...options, ...secure, servername, session }) : connectTcp(options)
    if (socket instanceof TLSSocket) sessions.keep(socket, address)
    let failure = new Error('closed before it was connected')
    let reached = false
    let late = false
    const timer = setTimeout(() => {
      late = true
      socket.destroy(new Error(`no connection within ${timeoutMs} ms`))
    }, timeoutMs)
    socket.on('error', (error) => {
      // Node's error for a name with several addresses has no message of its own.
      const errors = error instanceof AggregateError ? (error.errors as Error[]) : [error]
      failure = new Error(errors.map(({ message }) => message).join(', '), { cause: error })
    })
    socket.once('connect', () => (reached = true))
    socket.once(secure === undefined ? 'connect' : 'secureConnect', () => {
      clearTimeout(timer)
      socket.off('close', onClose)
      done(undefined, false)
    })
    const onClose = (): void => {
      clearTimeout(timer)
      const again = session !== undefined && reached && !late
      if (again) sessions.forget(address)
      done(failure, again)
    }
    socket.once('close', onClose)
    return socket
  }
}

/** How long a verified certificate is trusted without being seen again: a resumed session shows none. */
const MAX_UNVERIFIED_MS = 5 * 60_000

/** Keeps TLS sessions that new sockets resume, which spares both ends most of a handshake. All sockets verify by the same rules. */
export function createTlsSessions(now = (): number => performance.now()) {
  const known = new Map<Address, { readonly session: Buffer; readonly verifiedAt: number }>()
  return {
    get(address: Address): Buffer | undefined {
      const kept = known.get(address)
      return kept && now() - kept.verifiedAt < MAX_UNVERIFIED_MS ? kept.session : undefined
    },
    /** Keeps the sessions that the upstream issues on a new socket, which offers what `get` returned. */
    keep(socket: TLSSocket, address: Address): void {
      const offered = known.get(address)
      // Node emits none before the certificate is verified.
      socket.on('session', (session) => {
        const verifiedAt = socket.isSessionReused() ? offered?.verifiedAt : now()
        if (verifiedAt !== undefined) known.set(address, { session, verifiedAt })
      })
    },
    /** Offers none until there is another: a handshake with it failed. */
    forget: (address: Address): boolean => known.delete(address),
  }
}
