import type { Metrics } from './metrics.ts'
import { MODES, type Status, type UpstreamStatus } from './status.ts'

type ReadUpstream = (upstream: UpstreamStatus) => number

/** Makes the gauges read the state of this process whenever they are shown. */
export function showGauges({ showGauge }: Metrics, status: () => Status): void {
  /** Shows a number of each upstream, combined for several processes by `aggregator`. */
  function showUpstreams(aggregator: 'sum' | 'max', name: string, help: string, read: ReadUpstream) {
    showGauge(aggregator, `sluice_upstream_${name}{upstream}`, help, () =>
      status().upstreams.map((one) => [{ upstream: one.upstream }, read(one)]),
    )
  }
  showGauge('sum', 'sluice_workers', 'Processes that serve callers.', () => [[{}, status().workers]])
  showGauge('sum', 'sluice_downstream_sockets', 'Open sockets.', () => [[{}, status().sockets]])
  const up = '1 if the store decides, in every worker.'
  showGauge('min', 'sluice_store_up', up, () => [[{}, Number(status().store.up)]])
  showGauge('max', 'sluice_store_mode{mode}', '1 for the modes in use, in any worker.', () => {
    const { modes } = status().store
    return MODES.map((mode) => [{ mode }, Number(modes.includes(mode))])
  })
  showGauge('max', 'sluice_store_fallback_last_timestamp_seconds', 'Last fallback.', () => {
    const { lastWithoutRedis } = status().store
    return [[{}, lastWithoutRedis === null ? 0 : Date.parse(lastWithoutRedis) / 1000]]
  })
  const counting = 'Processes that count in this Redis, each worker for itself.'
  if (status().gateways !== null)
    showGauge('max', 'sluice_store_gateways', counting, () => [[{}, status().gateways ?? 0]])
  showGauge('min', 'sluice_upstream_up{upstream,address}', '0 while the address fails.', () =>
    status().upstreams.map(({ upstream, address, up }) => [{ upstream, address }, Number(up)]),
  )
  showUpstreams('sum', 'sockets', 'Open sockets to the upstream.', ({ sockets }) => sockets)
  const max = 'Maximum of sluice_upstream_sockets (maxConnections of the upstream).'
  showUpstreams('sum', 'max_sockets', max, ({ maxSockets }) => maxSockets)
  showUpstreams('sum', 'queue', 'Requests waiting for a socket.', ({ queue }) => queue)
  showUpstreams('sum', 'waiting', 'Requests waiting for the head of a response.', ({ waiting }) => waiting)
  const oldest = 'Time that the oldest request has waited for its head; 0 if none waits.'
  showUpstreams('max', 'oldest_wait_seconds', oldest, ({ oldestWaitSeconds }) => oldestWaitSeconds)
  const age = "Seconds since the issuer's keys were last read, or since the first attempt."
  showGauge('max', 'sluice_issuer_keys_age_seconds{issuer}', age, () =>
    status().issuers.map(({ issuer, ageSeconds }) => [{ issuer }, ageSeconds]),
  )
  showGauge('min', 'sluice_introspection_up{issuer}', '0 while it fails, else 1.', () =>
    status().introspection.map(({ issuer, up }) => [{ issuer }, Number(up)]),
  )
  const expiry = 'Expiry of the first certificate in the file at this path of the configuration.'
  showGauge('min', 'sluice_certificate_expiry_timestamp_seconds{certificate}', expiry, () =>
    status().certificates.map(({ certificate, expiresAt }) => [{ certificate }, expiresAt / 1000]),
  )
}
