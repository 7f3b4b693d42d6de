import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, createSecureContext } from 'node:tls'
import type { Address } from './addresses.ts'
import { createSessions, type Sessions } from './tls-sessions.ts'

/** PEM texts, and the name that the certificate of the far end must bear. */
export interface Tls {
  readonly ca: string | undefined
  readonly servername: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/**
 * Opens a socket to an address. `done` is told once: when it may be written to, with undefined; or when it never will, with the
 * reason, and whether another one to this address may fare better: it has refused no more than a TLS session.
 */
export type Connect = (address: Address, done: (failure: Error | undefined, again: boolean) => void) => Socket

/** A socket that connects. */
interface Opening {
  readonly socket: Socket
  /** Did it offer a TLS session? */
  readonly resumes: boolean
}

/** Opens sockets within so many milliseconds each, over TLS where `tls` is given. Names are resolved anew for each. */
export function createConnect(withinMs: number, tls: Partial<Tls> | undefined): Connect {
  const sessions = createSessions()
  const open = tls === undefined ? openTcp : secureOpener(tls, sessions)
  return (address, done) => {
    const { socket, resumes } = open(address)
    let failure: Error | undefined
    let reached = false
    let ready = false
    let late = false
    const timer = setTimeout(() => {
      late = true
      socket.destroy(new Error(`no connection within ${withinMs} ms`))
    }, withinMs)
    socket.on('error', (error) => (failure = named(error)))
    socket.once('connect', () => (reached = true))
    socket.once(tls === undefined ? 'connect' : 'secureConnect', () => {
      ready = true
      clearTimeout(timer)
      done(undefined, false)
    })
    socket.once('close', () => {
      if (ready) return
      clearTimeout(timer)
      const again = resumes && reached && !late
      if (again) sessions.refused(address)
      done(failure ?? new Error('closed before it was connected'), again)
    })
    return socket
  }
}

const openTcp = (address: Address): Opening => ({ socket: connectTcp(optionsFor(address)), resumes: false })

function optionsFor({ host, port }: Address) {
  return { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
}

/** What the TLS sockets to an upstream have in common is made once. */
function secureOpener(
  { ca, servername, cert, key }: Partial<Tls>,
  sessions: Sessions,
): (address: Address) => Opening {
  const options: ConnectionOptions = {
    secureContext: createSecureContext({ ca, cert, key, minVersion: 'TLSv1.2' }),
    ALPNProtocols: ['http/1.1'],
    // Not even NODE_TLS_REJECT_UNAUTHORIZED=0 lets an upstream go unverified.
    rejectUnauthorized: true,
  }
  return (address) => {
    const session = sessions.of(address)
    const socket = connectTls({
      ...optionsFor(address),
      ...options,
      // Node's agent would take the name to verify from the caller's Host.
      servername: servername ?? (isIP(address.host) === 0 ? address.host : ''),
      session,
    })
    sessions.keep(socket, address)
    return { socket, resumes: session !== undefined }
  }
}

/** Where a name has several addresses, and none takes the connection, Node's error has no words of its own. */
function named(error: Error): Error {
  if (!(error instanceof AggregateError)) return error
  return new Error(error.errors.map(({ message }: Error) => message).join(', '), { cause: error })
}
