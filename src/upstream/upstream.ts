import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AddressChange, createAddresses } from './addresses.ts'
import { createConnect, type Tls } from './connect.ts'
import { type Forwarded, type Outgoing, pass, type Way } from './request.ts'
import { createSend } from './proxy.ts'
import { createSockets } from './connections.ts'
import { type IdentityHeaders, identityHeadersOf } from '../downstream/head.ts'
import { READ_MS } from '../downstream/slow-reader.ts'

/** A backend, and how long it is waited for. */
export interface Upstream {
  readonly name: string
  /** Where it answers, such as `http://data.internal:4000`; several are used in turn, all by the same scheme. */
  readonly origins: readonly string[]
  /** Milliseconds until the head of the answer, and between the bytes of a body in either direction. */
  readonly timeoutMs: number
  readonly connectTimeoutMs: number
  /** How `https` is spoken: PEM texts. What is not set is as Node.js has it, but no certificate goes unverified. */
  readonly tls: Tls | undefined
  readonly maxConnections: number
  /** Fields that only a trusted proxy may send to it, beside those that are known. */
  readonly identityHeaders?: readonly string[]
  /** Milliseconds that a caller which seems to take nothing of its answer is given at least; default `READ_MS`. */
  readonly readMs?: number
}

export interface Forward {
  (request: IncomingMessage, response: ServerResponse, outgoing: Outgoing): Promise<Forwarded>
  readonly identityHeaders: IdentityHeaders
  /** The upstream's addresses, and which of them are in use. */
  addresses(): readonly { readonly address: string; readonly up: boolean }[]
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/**
 * Streams requests to one upstream over kept-alive sockets, and its answers back.
 * Never rejects, never leaves the caller waiting longer than the timeouts, never completes an answer that was cut.
 */
export function createForward(upstream: Upstream, onChange: (change: AddressChange) => void): Forward {
  const { protocol } = new URL(upstream.origins[0]!)
  const addresses = createAddresses(upstream.origins, (change) => {
    if (!change.up) sockets.leave(change.address)
    onChange(change)
  })
  const tls = protocol === 'https:' ? (upstream.tls ?? {}) : undefined
  const sockets = createSockets({
    addresses,
    connect: createConnect(upstream.connectTimeoutMs, tls),
    max: upstream.maxConnections,
  })
  const way: Way = {
    name: upstream.name,
    timeoutMs: upstream.timeoutMs,
    readMs: upstream.readMs ?? READ_MS,
    addresses,
    sockets,
    send: createSend(protocol),
  }
  const forward = (
    request: IncomingMessage,
    response: ServerResponse,
    outgoing: Outgoing,
  ): Promise<Forwarded> => pass(way, request, response, outgoing)
  return Object.assign(forward, {
    identityHeaders: identityHeadersOf(upstream.identityHeaders ?? []),
    addresses: () => addresses.all.map(({ origin, downUntil }) => ({ address: origin, up: downUntil === 0 })),
    close: sockets.close,
  })
}
