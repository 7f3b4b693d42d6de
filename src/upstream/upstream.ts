import type { ServerResponse } from 'node:http'
import { SLOW_READER_MS } from '../downstream/listener/sockets.ts'
import { Refusal } from '../errors.ts'
import { UnorderedList } from '../runtime/unordered-list.ts'
import { type AddressChange, createAddresses, createConnect, noConnection } from './addresses.ts'
import type { Tls } from './addresses.ts'
import { createConnections } from './connections.ts'
import type { Outgoing } from './headers.ts'
import { createSend } from './proxy.ts'
import { type Backend, type OnRequestEnd, UpstreamRequest } from './request.ts'

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
  /** Timeout of a caller that appears to read nothing, in milliseconds; default `SLOW_READER_MS`. */
  readonly slowReaderMs?: number
}

/**
 * Creates the function that streams requests to one upstream, and responses back. It calls back
 * once, and never completes a cut response.
 */
export function createForward(upstream: Upstream, onChange: (change: AddressChange) => void) {
  const { name, timeoutMs, connectTimeoutMs, origins, maxConnections, tls = {} } = upstream
  const { protocol } = new URL(origins[0]!)
  const addresses = createAddresses(origins, (change) => {
    if (!change.up) connections.evict(change.address)
    onChange(change)
  })
  const connect = createConnect(connectTimeoutMs, protocol === 'https:' ? tls : undefined)
  const connections = createConnections(addresses, connect, maxConnections)
  const timeouts = createTimeouts(upstream)
  const backend: Backend = { ...connections, name, timeoutMs, timeouts, send: createSend(protocol) }
  const forward = (response: ServerResponse, outgoing: Outgoing, onEnd: OnRequestEnd) =>
    void new UpstreamRequest(backend, response, outgoing, onEnd)
  return Object.assign(forward, {
    addresses: () => addresses.all.map(({ origin, health }) => ({ address: origin, up: health.up })),
    load: connections.load,
    waits: timeouts.waits,
    close: connections.close,
  })
}

export type Forward = ReturnType<typeof createForward>

/** Check interval: a timeout fires at most this much late. */
const TICK_MS = 40

/**
 * Ends requests to an upstream that make no progress, with one timer, which runs while there are
 * any. The timeouts of a request:
 * - `timeout` of the upstream or the route (30 s): without a head 504, without a free socket 503, while connecting 502;
 *   between the bytes of a body, the response is cut.
 * - `connectTimeout` (2 s) of each address (addresses.ts): the next address, then 502.
 * - A full queue (connections.ts): 503 at once.
 * - `SLOW_READER_MS` (200 s) of a caller that reads nothing: its socket is closed.
 * - `listen.requestTimeout` (60 s) of a caller that is still sending (server.ts): 408.
 */
function createTimeouts({ name, slowReaderMs = SLOW_READER_MS }: Upstream) {
  const requests = new UnorderedList<UpstreamRequest>()
  let timer: NodeJS.Timeout | undefined

  function sweep(): void {
    const now = performance.now()
    requests.forEach((request) => {
      const silentMs = now - request.silentSince
      if (silentMs >= request.timeoutMs) onSilence(request, silentMs)
    })
    if (requests.size > 0) return
    clearInterval(timer)
    timer = undefined
  }

  /** Ends a request without progress, unless it waits for the caller. */
  function onSilence(silent: UpstreamRequest, silentMs: number): void {
    const { response, timeoutMs, waitsFor } = silent
    // `listen.requestTimeout` applies to a caller that is still sending.
    if (silent.headAt === undefined && silent.waitsForCaller) return
    // The response waits for a caller that reads none of it, or too little for the system to report.
    if (response.headersSent && (response.writableNeedDrain || response.writableEnded)) {
      if (silentMs < slowReaderMs) return
      silent.timedOut = `the caller read too little for ${Math.max(timeoutMs, slowReaderMs)} ms`
      silent.settle('left')
    } else if (waitsFor === 'slot') silent.failBusy()
    else if (waitsFor === 'connection') silent.failGateway(noConnection(timeoutMs))
    else {
      silent.failAddress(new Error(`silent for ${timeoutMs} ms`))
      const cause = `${name} was silent for ${timeoutMs} ms`
      silent.fail(new Refusal('GatewayTimeout', 'The upstream did not answer in time.', { cause }))
    }
  }

  return {
    add(request: UpstreamRequest): void {
      requests.add(request)
      timer ??= setInterval(sweep, TICK_MS)
    },
    delete: (request: UpstreamRequest): void => requests.delete(request),
    /**
     * Returns the number of requests that were sent and wait for a head, and the time that the
     * oldest of them has waited.
     */
    waits() {
      const now = performance.now()
      let count = 0
      let oldestMs = 0
      requests.forEach(({ headAt, awaited, silentSince }) => {
        if (headAt !== undefined || awaited !== 'response') return
        count++
        oldestMs = Math.max(oldestMs, now - silentSince)
      })
      return { count, oldestMs }
    },
  }
}
