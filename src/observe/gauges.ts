import type { Aggregator } from 'prom-client'
import type { GaugeValues, Metrics } from './metrics.ts'
import { MODES, type Status } from './status.ts'

type LoadName = 'sockets' | 'maxSockets' | 'queue' | 'waiting' | 'oldestWaitSeconds' | 'webSockets'

/** Returns true for the path of revocation lists, such as `listen.tls.crl`. */
const isOfLists = (certificate: string): boolean => certificate.endsWith('.tls.crl')

/** Makes the gauges read the state of this process whenever they are shown. `by` combines several processes. */
export function showGauges({ showGauge }: Metrics, status: () => Status): void {
  function show(by: Aggregator, name: string, help: string, read: (status: Status) => GaugeValues) {
    showGauge(by, `sluice_${name}`, help, () => read(status()))
  }
  function showLoad(by: Aggregator, name: string, load: LoadName, help: string): void {
    show(by, `upstream_${name}{upstream}`, help, ({ upstreams }) =>
      upstreams.map((one) => [{ upstream: one.upstream }, one[load]]),
    )
  }
  show('sum', 'workers', 'Processes that serve callers.', ({ workers }) => [[{}, workers]])
  show('sum', 'downstream_sockets', 'Open sockets.', ({ sockets }) => [[{}, sockets]])
  const up = '1 if the store decides, in every worker.'
  show('min', 'store_up', up, ({ store }) => [[{}, store.outage === null]])
  show('max', 'store_mode{mode}', '1 for the modes in use, in any worker.', ({ store }) =>
    MODES.map((mode) => [{ mode }, store.modes.includes(mode)]),
  )
  show('max', 'store_fallback_last_timestamp_seconds', 'Last fallback.', ({ store }) => [
    [{}, Date.parse(store.lastWithoutRedis ?? '1970-01-01') / 1000],
  ])
  const counting = 'Processes that count in this Redis, each worker for itself.'
  if (status().gateways !== null) show('max', 'store_gateways', counting, ({ gateways }) => [[{}, gateways]])
  const known = '1 if the overrides were read from Redis or store.overridesFile, in every worker.'
  show('min', 'overrides_known', known, ({ overridesKnown }) => [[{}, overridesKnown]])
  show('min', 'upstream_up{upstream,address}', '0 while the address fails.', ({ upstreams }) =>
    upstreams.map(({ upstream, address, up }) => [{ upstream, address }, up]),
  )
  showLoad('sum', 'sockets', 'sockets', 'Open sockets to the upstream.')
  const max = 'Maximum of sluice_upstream_sockets (maxConnections of the upstream).'
  showLoad('sum', 'max_sockets', 'maxSockets', max)
  showLoad('sum', 'queue', 'queue', 'Requests waiting for a socket.')
  showLoad('sum', 'waiting', 'waiting', 'Requests waiting for the head of a response.')
  showLoad('sum', 'websockets', 'webSockets', 'Open WebSockets.')
  const oldest = 'Time that the oldest request has waited for its head; 0 if none waits.'
  showLoad('max', 'oldest_wait_seconds', 'oldestWaitSeconds', oldest)
  const age = "Seconds since the issuer's keys were last read, or since the first attempt."
  show('max', 'issuer_keys_age_seconds{issuer}', age, ({ issuers }) =>
    issuers.map(({ issuer, ageSeconds }) => [{ issuer }, ageSeconds]),
  )
  show('min', 'introspection_up{issuer}', '0 while it fails, else 1.', ({ issuers }) =>
    issuers.map(({ issuer, introspectionUp }) => [{ issuer }, introspectionUp]),
  )
  const expiry = 'Expiry of the first certificate in the file at this path of the configuration.'
  show('min', 'certificate_expiry_timestamp_seconds{certificate}', expiry, ({ certificates }) =>
    certificates
      .filter(({ certificate }) => !isOfLists(certificate))
      .map(({ certificate, expiresAt }) => [{ certificate }, expiresAt / 1000]),
  )
  const update =
    'Latest time of the next certificate revocation list (CRL), of the first authority that needs one.'
  show('min', 'tls_crl_next_update_timestamp_seconds{crl}', update, ({ certificates }) =>
    certificates
      .filter(({ certificate }) => isOfLists(certificate))
      .map(({ certificate: crl, expiresAt }) => [{ crl }, expiresAt / 1000]),
  )
}
