import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext } from 'node:tls'
import { Health, type HealthOptions } from '../health.ts'
import { toError } from '../runtime/to-error.ts'
import { createLookup, type Resolve } from './lookup.ts'

/** Returns what is called when an address, such as `http://data.internal:4000`, goes down or up. */
export type AddressEvents = (address: string) => Pick<HealthOptions, 'onDown' | 'onUp'>

/** An address of an upstream, whose health decides whether it is used. */
export interface Address {
  /** The URL, such as `http://data.internal:4000`. */
  readonly origin: string
  /** The name, or an IP address without brackets; empty for a Unix socket. */
  readonly host: string
  readonly port: number
  /** The path of a Unix socket; undefined for others. */
  readonly socketPath: string | undefined
  readonly health: Health
  /** Open and connecting sockets. */
  sockets: number
}

/** Three failures in a row cannot be the fault of one request. */
const HEALTH = { failures: 3, backoffMs: 1000, maxBackoffMs: 30_000 }

function createAddress(origin: string, eventsOf: AddressEvents): Address {
  const { protocol, hostname, port, pathname } = new URL(origin)
  const socketPath = protocol === 'unix:' ? pathname : undefined
  const health = new Health({ ...HEALTH, ...eventsOf(origin) })
  const host = hostname.replace(/^\[|\]$/g, '')
  const defaultPort = protocol === 'https:' ? 443 : 80
  return { origin, host, port: Number(port) || defaultPort, socketPath, health, sockets: 0 }
}

/**
 * Rotates through addresses, without those that are down until a trial request succeeds; if all are
 * down, all are used.
 */
export function createAddresses(origins: readonly string[], eventsOf: AddressEvents) {
  const all = origins.map((origin) => createAddress(origin, eventsOf))
  let rotation = 0

  /**
   * Returns the next address outside `tried`: one that is up or due for a trial, else any;
   * undefined if all were tried.
   */
  function next(tried: readonly Address[] = []): Address | undefined {
    let down: Address | undefined
    for (let i = 0; i < all.length; i++) {
      const address = all[rotation++ % all.length]!
      if (tried.includes(address)) continue
      if (address.health.up || address.health.due()) return address
      down ??= address
    }
    rotation++
    return down
  }

  return { all, next }
}

export type Addresses = ReturnType<typeof createAddresses>

/** PEM texts, and the name that the upstream's certificate must be for. */
export type Tls = Readonly<Partial<Record<'ca' | 'servername' | 'cert' | 'key', string | undefined>>>

/**
 * Opens a socket to an address. Calls `done` once: with undefined when the socket is connected,
 * else with the error.
 */
export type Connect = (address: Address, done: (failure: Error | undefined) => void) => Socket

/**
 * Creates `Connect`, over TLS if `tls` is given. Host names are resolved, and certificates
 * verified, for each socket.
 */
export function createConnect(timeoutMs: number, tls: Partial<Tls> | undefined, resolve?: Resolve): Connect {
  const lookup = createLookup(resolve)
  const secure = tls && {
    secureContext: createSecureContext({ ...tls, minVersion: 'TLSv1.2' }),
    ALPNProtocols: ['http/1.1'],
    // Overrides NODE_TLS_REJECT_UNAUTHORIZED=0.
    rejectUnauthorized: true,
  }
  return ({ host, port, socketPath }, done) => {
    const where = socketPath === undefined ? { host, port } : { path: socketPath }
    const options = {
      ...where,
      lookup,
      // Overrides --no-network-family-autoselection, with which only the first address is used.
      autoSelectFamily: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: 1000,
    }
    // Node's agent would take the name to verify from the caller's Host.
    const servername = tls?.servername ?? (isIP(host) === 0 ? host : '')
    const socket = secure ? connectTls({ ...options, ...secure, servername }) : connectTcp(options)
    const timer = setTimeout(() => socket.destroy(noConnection(timeoutMs)), timeoutMs)
    const onClose = (): void => {
      clearTimeout(timer)
      done(failureOf(socket))
    }
    socket.on('error', () => {})
    socket.once('close', onClose)
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer)
      socket.off('close', onClose)
      done(undefined)
    })
    return socket
  }
}

export const noConnection = (ms: number): Error => new Error(`no connection within ${ms} ms`)

function failureOf({ errored: error }: Socket): Error {
  if (error === null) return new Error('closed before it was connected')
  // Node's error for a name with several addresses has an empty message.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error]
  return new Error(errors.map((one) => toError(one).message).join(', '), { cause: error })
}
