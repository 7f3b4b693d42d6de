import type { IncomingMessage, ServerResponse } from 'node:http'
import { SLOW_READER_MS } from '../downstream/sockets.ts'
import { type AddressChange, createAddresses } from './addresses.ts'
import { createConnect, type Tls } from './connect.ts'
import { createConnections } from './connections.ts'
import { normalizeFieldName } from './header-policy.ts'
import type { Outgoing } from './headers.ts'
import { createSend } from './proxy.ts'
import { type Backend, UpstreamRequest } from './request.ts'
import { createTimeouts } from './timeouts.ts'

export interface Upstream {
  readonly name: string
  /** Addresses such as `http://data.internal:4000`, used in rotation, all of the same scheme. */
  readonly origins: readonly string[]
  /** Milliseconds until the head of the response, and between the bytes of a body in either direction. */
  readonly timeoutMs: number
  readonly connectTimeoutMs: number
  /** PEM texts for `https`; Node's defaults otherwise. Certificates are always verified. */
  readonly tls: Tls | undefined
  readonly maxConnections: number
  /** Further fields that only a trusted proxy may send to it. */
  readonly identityHeaders?: readonly string[]
  /** Timeout of a caller that appears to read nothing, in milliseconds; default `SLOW_READER_MS`. */
  readonly slowReaderMs?: number
}

/** Creates the function that streams requests to one upstream, and responses back. It never rejects, and never completes a cut response. */
export function createForward(upstream: Upstream, onChange: (change: AddressChange) => void) {
  const { name, timeoutMs, slowReaderMs = SLOW_READER_MS, origins, maxConnections } = upstream
  const { protocol } = new URL(origins[0]!)
  const addresses = createAddresses(origins, (change) => {
    if (!change.up) connections.evict(change.address)
    onChange(change)
  })
  const tls = protocol === 'https:' ? (upstream.tls ?? {}) : undefined
  const connections = createConnections(
    addresses,
    createConnect(upstream.connectTimeoutMs, tls),
    maxConnections,
  )
  const send = createSend(protocol)
  const backend: Backend = { name, timeoutMs, slowReaderMs, connections, timeouts: createTimeouts(), send }
  const forward = (request: IncomingMessage, response: ServerResponse, outgoing: Outgoing) =>
    new Promise<UpstreamRequest>((resolve) =>
      new UpstreamRequest(backend, request, response, outgoing, resolve).start(),
    )
  const names = (upstream.identityHeaders ?? []).map((name) => name.toLowerCase())
  return Object.assign(forward, {
    identityHeaders: new Map(names.map((name) => [normalizeFieldName(name), name])),
    /** Returns the upstream's addresses, and whether they are in use. */
    addresses: () => addresses.all.map(({ origin, health }) => ({ address: origin, up: health.up })),
    /** Returns the number of open sockets, and of queued requests. */
    load: () => ({ sockets: connections.sockets(), waiting: connections.waiting() }),
    /** Closes the idle sockets; requests in flight continue. */
    close: connections.close,
  })
}

export type Forward = ReturnType<typeof createForward>
