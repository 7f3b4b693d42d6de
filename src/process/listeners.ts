import type { Socket } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import type { Config } from '../config/config.ts'
import { endConnections, drain } from '../downstream/listener/drain.ts'
import type { Serve } from '../downstream/listener/pipelining.ts'
import type { ListenerEvents } from '../downstream/listener/server.ts'
import { createListener, listen, renewCertificate } from '../downstream/listener/server.ts'
import { type Log, throttle } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { ShownRequest } from '../observe/shown-request.ts'
import { normalizeAddress } from '../runtime/address.ts'
import { sum } from '../runtime/merge.ts'
import type { Wired } from './wiring.ts'

/** Maximum peers that are logged within a minute for connections without a PROXY header. */
const MAX_LOGGED_PEERS = 100

export function createListeners(
  current: () => Wired,
  { addressOf }: ShownRequest,
  log: Log,
  metrics: Metrics,
) {
  const { listen: bounds, forwardAuth } = current().config
  let draining = false
  /** The sockets whose client certificates earlier authorities or revocation lists admitted. */
  let outdated: WeakSet<Socket> | undefined
  const logDropped = throttle((bound: string, ip: string) =>
    log.warn({ bound: `listen.${bound}`, ip: addressOf(ip) }, 'sockets dropped at the connection limit'),
  )
  const logUnproxied = throttle(
    (ip: string, error: string) =>
      log.warn({ ip: addressOf(ip), error }, 'connection without a valid PROXY header closed'),
    60_000,
    (ip) => ip,
    MAX_LOGGED_PEERS,
  )
  const events: ListenerEvents = {
    idField: () => current().config.headers.requestId,
    unreadable(peer, status, error, requestId) {
      metrics.unmatched.requests.inc('any', String(status), 'gateway')
      const ip = addressOf(normalizeAddress(peer))
      log.info({ requestId, ip, source: 'gateway', status, error }, 'malformed request')
    },
    insecure: (peer, error) =>
      log.info({ ip: addressOf(normalizeAddress(peer)), source: 'gateway', error }, 'TLS handshake failed'),
    trusts: (address) => current().peers.trusts(address),
    dropped(bound, address) {
      metrics.droppedSockets.inc({ bound })
      logDropped(bound, normalizeAddress(address))
    },
    unproxied: (peer, reason) => logUnproxied(normalizeAddress(peer), reason),
  }
  function serveWith(name: 'serve' | 'serveAsked'): Serve {
    return (response, expectsContinue, done) => {
      if (draining || outdated?.has(response.req.socket) === true) response.shouldKeepAlive = false
      current()[name]!(response, expectsContinue, done)
    }
  }
  const server = createListener(serveWith('serve'), bounds, events, bounds.tls)
  const asked = forwardAuth && {
    ...forwardAuth,
    server: createListener(
      serveWith('serveAsked'),
      { ...bounds, proxyProtocol: false },
      { ...events, trusts: () => true },
    ),
  }
  metrics.maxSockets.set(bounds.maxConnections)

  return {
    server,
    /** Opens the callers' port last. Resolves with the URLs; rejects with a message for the operator. */
    async open() {
      const other = asked && (await listen(asked.server, asked.host, asked.port, 'forwardAuth'))
      const address = await listen(server, bounds.host, bounds.port, 'listen').catch((error) => {
        asked?.server.close()
        throw error
      })
      return { address, forwardAuthAddress: other }
    },
    /**
     * Uses the TLS settings of a new configuration, only if they have changed: a renewal ends the TLS
     * sessions that callers could resume. If other client certificates are accepted now, open
     * connections end with their next response.
     */
    renew({ listen: { tls: next } }: Config): void {
      const { tls } = current().config.listen
      if (tls === undefined || next === undefined || isDeepStrictEqual(next, tls)) return
      renewCertificate(server, next)
      const { crl, clientCa } = tls
      const hasNewLists = !isDeepStrictEqual(next.crl, crl)
      if (hasNewLists || next.clientCa !== clientCa) outdated = endConnections(server)
      if (hasNewLists) log.info('certificate revocation list renewed')
      if (!isDeepStrictEqual({ ...next, crl }, tls)) log.info('TLS certificate renewed')
    },
    draining: () => draining,
    /** Ends new and idle connections, then all; returns the number of aborted requests. */
    async drain(withinMs: number, idleMs: number): Promise<number> {
      draining = true
      const servers = asked ? [server, asked.server] : [server]
      return sum(await Promise.all(servers.map((one) => drain(one, withinMs, idleMs))))
    },
  }
}
