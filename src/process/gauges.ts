import type { Server } from 'node:http'
import type { Validity } from '../config/certificates.ts'
import { openSockets } from '../downstream/drain.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Forward, Upstream } from '../upstream/upstream.ts'
import type { Issuers } from './open-authentication.ts'

/** What is in force, of which gauges show the state. */
export interface Observed {
  readonly issuers: Issuers
  readonly forwards: ReadonlyMap<string, Forward>
  readonly upstreams: readonly Upstream[]
  readonly certificates: readonly Validity[]
}

/** Has the gauges read their values from `server`, and from what is in force whenever they are shown. */
export function showGauges(metrics: Metrics, server: Server, current: () => Observed): void {
  const ofForwards = (read: (forward: Forward) => number) =>
    [...current().forwards].map(([upstream, forward]) => [{ upstream }, read(forward)] as const)

  metrics.readKeyAges(() => current().issuers.keyAges())
  metrics.readIntrospections(() => current().issuers.introspections())
  metrics.readCertificates(() =>
    current().certificates.map(
      ({ path, validToMs }) => [{ certificate: path.join('.') }, validToMs / 1000] as const,
    ),
  )
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
