import { X509Certificate } from 'node:crypto'
import type { Server } from 'node:http'
import type { Config } from '../config/schema.ts'
import { openSockets } from '../downstream/drain.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Forward, Upstream } from '../upstream/upstream.ts'
import type { Issuers } from './open-authentication.ts'

/** What is in force, of which gauges show the state. */
export interface Observed {
  readonly issuers: Issuers
  readonly forwards: ReadonlyMap<string, Forward>
  readonly upstreams: readonly Upstream[]
  readonly certificates: ReturnType<typeof certificateExpiries>
}

/** Has the gauges read their values from `server`, and from what is in force whenever they are shown. */
export function showGauges(metrics: Metrics, server: Server, current: () => Observed): void {
  const ofForwards = (read: (forward: Forward) => number) =>
    [...current().forwards].map(([upstream, forward]) => [{ upstream }, read(forward)] as const)

  metrics.readKeyAges(() => current().issuers.keyAges())
  metrics.readIntrospections(() => current().issuers.introspections())
  metrics.readCertificates(() => current().certificates)
  metrics.readUpstreams(() =>
    [...current().forwards].flatMap(([upstream, { addresses }]) =>
      addresses().map(({ address, up }) => [{ upstream, address }, up ? 1 : 0] as const),
    ),
  )
  metrics.readSockets(() => [[{}, openSockets(server)]])
  metrics.readUpstreamSockets(() => ofForwards(({ load }) => load().sockets))
  metrics.readUpstreamQueues(() => ofForwards(({ load }) => load().waiting))
  metrics.readUpstreamMaxSockets(() =>
    current().upstreams.map(({ name, maxConnections }) => [{ upstream: name }, maxConnections] as const),
  )
}

const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/** Returns when each PEM file of a configuration expires, by its path there: epoch seconds, the earliest of its certificates. */
export function certificateExpiries({ listen, upstreams, store }: Config) {
  const sections = [
    ['listen.tls', listen.tls] as const,
    ...upstreams.map(({ name, tls }) => [`upstreams.${name}.tls`, tls] as const),
    ['store.redis.tls', store === 'memory' ? undefined : store.redis.tls] as const,
  ]
  return sections.flatMap(([path, tls]) => {
    const files: Readonly<Partial<Record<string, unknown>>> = { ...tls }
    return ['cert', 'ca', 'clientCa'].flatMap((key) => {
      const pem = files[key]
      const expiries = typeof pem === 'string' ? [...pem.matchAll(CERTIFICATE)].map(expiryOf) : []
      return expiries.length === 0
        ? []
        : [[{ certificate: `${path}.${key}` }, Math.min(...expiries)] as const]
    })
  })
}

/** Returns epoch seconds; NaN of what OpenSSL cannot put into words. */
function expiryOf([pem]: RegExpExecArray): number {
  return Date.parse(new X509Certificate(pem).validTo) / 1000
}
