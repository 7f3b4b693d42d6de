import type { IncomingMessage, ServerResponse } from 'node:http'
import { SLOW_READER_MS } from '../downstream/sockets.ts'
import { type AddressChange, createAddresses } from './addresses.ts'
import { createConnect, type Tls } from './connect.ts'
import { createConnections } from './connections.ts'
import { normalizeFieldName } from './header-policy.ts'
import { createSend, type Outgoing } from './proxy.ts'
import { UpstreamRequest } from './request.ts'
import { createTimeouts } from './timeouts.ts'

export interface Upstream {
  readonly name: string
  /** Where it answers, such as `http://data.internal:4000`; several are used in rotation, all by the same scheme. */
  readonly origins: readonly string[]
  /** Milliseconds until the head of the answer, and between the bytes of a body in either direction. */
  readonly timeoutMs: number
  readonly connectTimeoutMs: number
  /** PEM texts for `https`. What is not set is Node.js's default, but no certificate goes unverified. */
  readonly tls: Tls | undefined
  readonly maxConnections: number
  /** Fields that only a trusted proxy may send to it, beside those that are known. */
  readonly identityHeaders?: readonly string[]
  /** Milliseconds that a caller which seems to read nothing is given; default `READ_MS`. */
  readonly readMs?: number
}

function createBackend(upstream: Upstream, onChange: (change: AddressChange) => void) {
  const { name, timeoutMs, readMs = SLOW_READER_MS, origins } = upstream
  const { protocol } = new URL(origins[0]!)
  const addresses = createAddresses(origins, (change) => {
    if (!change.up) connections.evict(change.address)
    onChange(change)
  })
  const tls = protocol === 'https:' ? (upstream.tls ?? {}) : undefined
  const connect = createConnect(upstream.connectTimeoutMs, tls)
  const connections = createConnections(addresses, connect, upstream.maxConnections)
  const timeouts = createTimeouts()
  return { name, timeoutMs, readMs, addresses, connections, timeouts, send: createSend(protocol) }
}

export type Backend = ReturnType<typeof createBackend>

/** Streams requests to one upstream, and its answers back, within the timeouts. Never rejects, never completes a cut answer. */
export function createForward(upstream: Upstream, onChange: (change: AddressChange) => void) {
  const backend = createBackend(upstream, onChange)
  const forward = (request: IncomingMessage, response: ServerResponse, outgoing: Outgoing) =>
    new Promise<UpstreamRequest>((resolve) =>
      new UpstreamRequest(backend, request, response, outgoing, resolve).start(),
    )
  const names = (upstream.identityHeaders ?? []).map((name) => name.toLowerCase())
  return Object.assign(forward, {
    identityHeaders: new Map(names.map((name) => [normalizeFieldName(name), name])),
    /** Returns the upstream's addresses, and which of them are in use. */
    addresses: () => backend.addresses.all.map(({ origin, health }) => ({ address: origin, up: health.up })),
    /** Returns how many sockets are open, and how many requests wait for one. */
    load: () => ({ sockets: backend.connections.sockets(), waiting: backend.connections.waiting() }),
    /** Closes the idle sockets; requests in flight end undisturbed. */
    close: backend.connections.close,
  })
}

export type Forward = ReturnType<typeof createForward>
