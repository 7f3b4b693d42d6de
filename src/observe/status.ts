import type { OutageMode } from '../limit/quota.ts'
import { mergeBy, sum } from '../runtime/merge.ts'

/** What a gateway does without Redis, in words for operators. */
export const WITHOUT_REDIS: Readonly<Record<OutageMode, string>> = {
  local: 'counting in this process',
  allow: 'admitting every call',
  deny: 'refusing limited calls with 503',
}

/** What decides about limits: the store, or the fallback in a mode of `store.onOutage`. */
export type DecidingMode = 'store' | OutageMode
export const MODES: readonly DecidingMode[] = ['store', 'local', 'allow', 'deny']

/** The store of the counters. Instants are ISO 8601 in UTC. */
export interface StoreStatus {
  /** False while a server of it is down, in any process. */
  readonly up: boolean
  /** What decides now; the store and the fallback while single answers of Redis are late. */
  readonly modes: readonly DecidingMode[]
  /** Decisions without Redis since the start, and the instant of the last; null if there were none. */
  readonly withoutRedis: number
  readonly lastWithoutRedis: string | null
  /** The outage in progress, with the words of `WITHOUT_REDIS`; null if the store is up. */
  readonly outage: { readonly since: string; readonly text: string } | null
}

/** An address of an upstream. The load is that of all addresses of the upstream. */
export interface UpstreamStatus {
  readonly upstream: string
  readonly address: string
  readonly up: boolean
  readonly sockets: number
  readonly maxSockets: number
  /** Requests that wait for a socket. */
  readonly queue: number
  /** Requests that were sent and wait for the head of a response, and how long the oldest has waited; 0 if none waits. */
  readonly waiting: number
  readonly oldestWaitSeconds: number
}

/** The keys of an issuer. */
export interface IssuerStatus {
  readonly issuer: string
  /** Since the keys were last read; if they never were, since the first attempt. */
  readonly ageSeconds: number
  /** Failed attempts to read the keys since the start. */
  readonly failures: number
}

/** A certificate file; `certificate` is its path in the configuration, such as `listen.tls.cert`. */
export interface CertificateStatus {
  readonly certificate: string
  /** Epoch milliseconds. */
  readonly expiresAt: number
  /** `warning` if it expires soon, `failed` if it is not valid; `message` says until when it is. */
  readonly state: 'ok' | 'warning' | 'failed'
  readonly message: string
}

/** The state of a process, or of all: the gauges of `/metrics` and the console show it. */
export interface Status {
  /** Processes that serve callers. */
  readonly workers: number
  /** Processes that count in the same Redis; null with counters in memory. */
  readonly gateways: number | null
  /** Open sockets of callers. */
  readonly sockets: number
  /** Requests of the last seconds, those of them that limits refused, and those with a status of 500 or above. */
  readonly recent: { readonly requests: number; readonly refused: number; readonly failed: number }
  readonly store: StoreStatus
  readonly upstreams: readonly UpstreamStatus[]
  readonly issuers: readonly IssuerStatus[]
  readonly introspection: readonly { readonly issuer: string; readonly up: boolean }[]
  readonly certificates: readonly CertificateStatus[]
  /** Calls since the start that shadow limits would have refused. */
  readonly shadowOver: readonly { readonly limit: string; readonly calls: number }[]
}

/** Merges the states of several processes with the same configuration: adds up numbers, and shows the worst. */
export function mergeStatus(all: readonly Status[]): Status {
  const gateways = all.flatMap((status) => status.gateways ?? [])
  return {
    workers: sum(all.map(({ workers }) => workers)),
    gateways: gateways.length === 0 ? null : Math.max(...gateways),
    sockets: sum(all.map(({ sockets }) => sockets)),
    recent: {
      requests: sum(all.map(({ recent }) => recent.requests)),
      refused: sum(all.map(({ recent }) => recent.refused)),
      failed: sum(all.map(({ recent }) => recent.failed)),
    },
    store: mergeStores(all.map(({ store }) => store)),
    upstreams: mergeBy(
      all.flatMap(({ upstreams }) => upstreams),
      ({ upstream, address }) => `${upstream} ${address}`,
      (a, b) => ({
        ...a,
        up: a.up && b.up,
        sockets: a.sockets + b.sockets,
        maxSockets: a.maxSockets + b.maxSockets,
        queue: a.queue + b.queue,
        waiting: a.waiting + b.waiting,
        oldestWaitSeconds: Math.max(a.oldestWaitSeconds, b.oldestWaitSeconds),
      }),
    ),
    issuers: mergeBy(
      all.flatMap(({ issuers }) => issuers),
      ({ issuer }) => issuer,
      ({ issuer, ageSeconds, failures }, b) => ({
        issuer,
        ageSeconds: Math.max(ageSeconds, b.ageSeconds),
        failures: failures + b.failures,
      }),
    ),
    introspection: mergeBy(
      all.flatMap(({ introspection }) => introspection),
      ({ issuer }) => issuer,
      (a, b) => ({ ...a, up: a.up && b.up }),
    ),
    certificates: all[0]?.certificates ?? [],
    shadowOver: mergeBy(
      all.flatMap(({ shadowOver }) => shadowOver),
      ({ limit }) => limit,
      (a, b) => ({ ...a, calls: a.calls + b.calls }),
    ),
  }
}

function mergeStores(all: readonly StoreStatus[]): StoreStatus {
  const instants = all.map(({ lastWithoutRedis }) => lastWithoutRedis ?? '')
  return {
    up: all.every(({ up }) => up),
    modes: [...new Set(all.flatMap(({ modes }) => modes))],
    withoutRedis: sum(all.map(({ withoutRedis }) => withoutRedis)),
    lastWithoutRedis: instants.toSorted().at(-1) || null,
    outage: all.find(({ up }) => !up)?.outage ?? null,
  }
}
