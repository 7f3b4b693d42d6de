import type { ServerResponse } from 'node:http'
import { createAddresses, createConnect, type AddressEvents, type Tls } from './addresses.ts'
import { createConnections } from './connections.ts'
import { createSend } from './proxy.ts'
import { type Backend, type OnRequestEnd, UpstreamRequest } from './request.ts'
import type { Outgoing } from './request-headers.ts'
import { createTimeouts } from './timeouts.ts'

export interface Upstream {
  readonly name: string
  /** Addresses such as `http://data.internal:4000` or `unix:/run/app.sock`, used in rotation, all over TLS or none. */
  readonly origins: readonly string[]
  /** The path before that of each request, without a slash at its end; empty for none. */
  readonly path: string
  /** Maximum bytes of the head of a response. */
  readonly maxHeaderSize: number
  /** Milliseconds until the head of the response, and between the bytes of a body in either direction. */
  readonly timeoutMs: number
  readonly connectTimeoutMs: number
  /** PEM texts for `https`; Node's defaults otherwise. Certificates are always verified. */
  readonly tls: Tls | undefined
  readonly maxConnections: number
}

/** Forwards requests to one upstream. */
export interface Forward {
  /**
   * Streams the request of `response` to the upstream, as `outgoing` says, and what the upstream
   * responds to the caller. Calls `onEnd` once. If no response could be begun (`failed`), the
   * caller of this function writes it. A response that is cut never looks complete.
   */
  (response: ServerResponse, outgoing: Outgoing, onEnd: OnRequestEnd): void
  /** Returns the addresses; those that are not up get only trial requests. */
  addresses(): readonly { readonly address: string; readonly up: boolean }[]
  /**
   * Returns the number of open sockets, of requests that wait for one (`queue`), and of those that
   * were sent and wait for a head (`waiting`), with the time that the oldest has waited, and of open
   * WebSockets.
   */
  load(): Readonly<Record<'sockets' | 'queue' | 'waiting' | 'oldestWaitSeconds' | 'webSockets', number>>
  /** Closes the idle sockets now, and the others when their requests are over. */
  close(): void
}

/** Connects to an upstream, lazily. */
export function createForward(upstream: Upstream, eventsOf: AddressEvents): Forward {
  const { timeoutMs, connectTimeoutMs, origins, maxConnections, maxHeaderSize, tls = {} } = upstream
  const isSecure = origins[0]!.startsWith('https:')
  const addresses = createAddresses(origins, eventsOf)
  const connect = createConnect(connectTimeoutMs, isSecure ? tls : undefined)
  const connections = createConnections(addresses, connect, maxConnections)
  const timeouts = createTimeouts()
  const send = createSend({ ...upstream, protocol: isSecure ? 'https:' : 'http:' })
  const backend: Backend = { ...connections, timeoutMs, timeouts, maxHeaderSize, send }
  const forward = (response: ServerResponse, outgoing: Outgoing, onEnd: OnRequestEnd) =>
    void new UpstreamRequest(backend, response, outgoing, onEnd)
  return Object.assign(forward, {
    addresses: () => addresses.all.map(({ origin, health }) => ({ address: origin, up: health.up })),
    load: () => ({ ...connections.load(), ...timeouts.waits() }),
    close: connections.close,
  })
}
