import type { Server } from 'node:http'
import type { Validity } from '../config/certificates.ts'
import type { Config } from '../config/schema.ts'
import { openSockets } from '../downstream/drain.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Issuers } from './open-authentication.ts'

/** The state that gauges show; a reload replaces it. */
interface Observed {
  readonly config: Config
  readonly issuers: Issuers
  readonly forwards: ReadonlyMap<string, Forward>
  readonly certificates: readonly Validity[]
}

/** Makes the gauges read their values from `server` and the current state whenever they are shown. */
export function showGauges(metrics: Metrics, server: Server, current: () => Observed): void {
  const perUpstream = (read: (forward: Forward) => number) =>
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
  metrics.readUpstreamSockets(() => perUpstream(({ load }) => load().sockets))
  metrics.readUpstreamQueues(() => perUpstream(({ load }) => load().waiting))
  metrics.readUpstreamMaxSockets(() =>
    current().config.upstreams.map(
      ({ name, maxConnections }) => [{ upstream: name }, maxConnections] as const,
    ),
  )
}
