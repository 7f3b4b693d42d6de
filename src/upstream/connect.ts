import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls'
import type { Address } from './addresses.ts'

/** PEM texts, and the name that the upstream's certificate must be for. */
export interface Tls {
  readonly ca: string | undefined
  readonly servername: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/**
 * Opens a socket to an address. Calls `done` once: with undefined when the socket is connected, else with the error; `again` is
 * true if only an offered TLS session was refused, so that another socket may succeed.
 */
export type Connect = (address: Address, done: (failure: Error | undefined, again: boolean) => void) => Socket

/**
 * Read buffer shared by all sockets without TLS: Node would allocate and shrink a buffer for each read. A response of 64 kB comes in
 * one piece with its head.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(128 * 1024)

/** Maximum time without verifying a certificate again: a resumed session shows none. */
const MAX_UNVERIFIED_MS = 5 * 60_000

/** Creates `Connect`, over TLS if `tls` is given. Host names are resolved for each socket. */
export function createConnect(timeoutMs: number, tls: Partial<Tls> | undefined): Connect {
  /** TLS sessions that new sockets resume. All sockets verify by the same rules. */
  const sessions = new Map<Address, { readonly session: Buffer; readonly verifiedAt: number }>()
  const secure = tls && {
    secureContext: createSecureContext({ ca: tls.ca, cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2' }),
    ALPNProtocols: ['http/1.1'],
    // Overrides NODE_TLS_REJECT_UNAUTHORIZED=0.
    rejectUnauthorized: true,
  }
  return (address, done) => {
    const { host, port } = address
    const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
    const cached = sessions.get(address)
    const isOld = cached === undefined || performance.now() - cached.verifiedAt >= MAX_UNVERIFIED_MS
    const session = isOld ? undefined : cached.session
    // Node's agent would take the name to verify from the caller's Host.
    const servername = tls?.servername ?? (isIP(host) === 0 ? host : '')
    const socket: Socket = secure
      ? connectTls({ ...options, ...secure, servername, session })
      : connectTcp({ ...options, onread: { buffer: READ_BUFFER, callback: emitCopy } })
    function emitCopy(bytes: number): boolean {
      socket.emit('data', Buffer.from(READ_BUFFER.subarray(0, bytes)))
      return true
    }
    // Node emits sessions only after the certificate is verified.
    socket.on('session', (issued: Buffer) => {
      const verifiedAt = (socket as TLSSocket).isSessionReused() ? cached?.verifiedAt : performance.now()
      if (verifiedAt !== undefined) sessions.set(address, { session: issued, verifiedAt })
    })
    let failure = new Error('closed before it was connected')
    let reached = false
    let late = false
    const timer = setTimeout(() => {
      late = true
      socket.destroy(new Error(`no connection within ${timeoutMs} ms`))
    }, timeoutMs)
    socket.on('error', (error) => {
      // Node's error for a name with several addresses has an empty message.
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
      if (again) sessions.delete(address)
      done(failure, again)
    }
    socket.once('close', onClose)
    return socket
  }
}
