import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, createSecureContext, type TLSSocket } from 'node:tls'
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
  const sessions = new TlsSessions()
  const secure = tls && tlsOptions(tls)
  return (address, done) => {
    const { host, port } = address
    const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
    const session = secure && sessions.get(address)
    let socket: Socket
    if (secure === undefined) socket = connectTcp(options)
    else {
      // Node's agent would take the name to verify from the caller's Host.
      const servername = tls?.servername ?? (isIP(host) === 0 ? host : '')
      const secured = connectTls({ ...options, ...secure, servername, session })
      sessions.keep(secured, address)
      socket = secured
    }
    let failure: Error | undefined
    let reached = false
    let ready = false
    let late = false
    const timer = setTimeout(() => {
      late = true
      socket.destroy(new Error(`no connection within ${timeoutMs} ms`))
    }, timeoutMs)
    socket.on('error', (error) => (failure = withMessage(error)))
    socket.once('connect', () => (reached = true))
    socket.once(secure === undefined ? 'connect' : 'secureConnect', () => {
      ready = true
      clearTimeout(timer)
      done(undefined, false)
    })
    socket.once('close', () => {
      if (ready) return
      clearTimeout(timer)
      const again = session !== undefined && reached && !late
      if (again) sessions.refused(address)
      done(failure ?? new Error('closed before it was connected'), again)
    })
    return socket
  }
}

/** What all TLS sockets to an upstream have in common, made once. */
function tlsOptions({ ca, cert, key }: Partial<Tls>): ConnectionOptions {
  return {
    secureContext: createSecureContext({ ca, cert, key, minVersion: 'TLSv1.2' }),
    ALPNProtocols: ['http/1.1'],
    // Not even NODE_TLS_REJECT_UNAUTHORIZED=0 lets an upstream go unverified.
    rejectUnauthorized: true,
  }
}

/** Node's error for a name with several addresses, none of which took the connection, has no message of its own. */
function withMessage(error: Error): Error {
  if (!(error instanceof AggregateError)) return error
  return new Error(error.errors.map(({ message }: Error) => message).join(', '), { cause: error })
}

/** How long a verified certificate is trusted without being seen again: a resumed session shows none. */
const MAX_UNVERIFIED_MS = 5 * 60_000
const REFUSED_MS = 5 * 60_000

/** The TLS sessions that new sockets resume, which spares both ends most of a handshake. All sockets verify by the same rules. */
export class TlsSessions {
  readonly #now: () => number
  readonly #known = new Map<Address, { readonly session: Buffer; readonly verifiedAt: number }>()
  readonly #refusedUntil = new Map<Address, number>()

  constructor(now = (): number => performance.now()) {
    this.#now = now
  }

  /** Returns the session that a new socket to `address` may offer, if any. */
  get(address: Address): Buffer | undefined {
    const known = this.#known.get(address)
    if (known === undefined || this.#now() < (this.#refusedUntil.get(address) ?? 0)) return undefined
    return this.#now() - known.verifiedAt < MAX_UNVERIFIED_MS ? known.session : undefined
  }

  /** Keeps the sessions that the upstream issues on a new socket, which offers what `get` returned. */
  keep(socket: TLSSocket, address: Address): void {
    const offered = this.#known.get(address)
    // Node emits none before the certificate is verified.
    socket.on('session', (session) => {
      const verifiedAt = socket.isSessionReused() ? offered?.verifiedAt : this.#now()
      if (verifiedAt !== undefined) this.#known.set(address, { session, verifiedAt })
    })
  }

  /** Offers no session to `address` for a while: a handshake with one failed. */
  refused(address: Address): void {
    this.#refusedUntil.set(address, this.#now() + REFUSED_MS)
  }
}
