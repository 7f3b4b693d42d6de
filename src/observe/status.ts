import type { Mode } from '../limit/fallback/breakers.ts'
import type { OutageMode } from '../limit/quota.ts'
import { addCalls, addUp, mergeLists, sum } from '../runtime/merge.ts'

/** The words for operators on what a gateway does without Redis. */
export const WITHOUT_REDIS: Readonly<Record<OutageMode, string>> = {
  local: 'counting in this process',
  allow: 'admitting every call',
  deny: 'refusing limited calls with 503',
}

/** The deciders about limits: the store, or the fallback in a mode of `store.onOutage`. */
export const MODES: readonly Mode[] = ['store', 'local', 'allow', 'deny']

/** The store of the counters. Instants are ISO 8601 in UTC. */
export interface StoreStatus {
  /** The deciders now; the store and the fallback while single answers of Redis are late. */
  readonly modes: readonly Mode[]
  /** Decisions without Redis since the start, and the instant of the last; null if there were none. */
  readonly withoutRedis: number
  readonly lastWithoutRedis: string | null
  /** Set while a server of the store is down, in any process, with the words of `WITHOUT_REDIS`; else null. */
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
  /**
   * Requests that were sent and wait for the head of a response, and how long the oldest has waited;
   * 0 if none waits.
   */
  readonly waiting: number
  readonly oldestWaitSeconds: number
  /** Open WebSockets. */
  readonly webSockets: number
}

/** The keys of an issuer, and its introspection. */
export interface IssuerStatus {
  readonly issuer: string
  /** The time since the keys were last read; if they never were, since the first attempt. */
  readonly ageSeconds: number
  /** Failed attempts to read the keys since the start. */
  readonly failures: number
  /** Null without introspection. */
  readonly introspectionUp: boolean | null
}

/**
 * A certificate file, or certificate revocation lists; `certificate` is the path in the configuration, such as
 * `listen.tls.cert` or `listen.tls.crl`.
 */
export interface CertificateStatus {
  readonly certificate: string
  /** Epoch milliseconds. */
  readonly expiresAt: number
  /** `warning` if it expires soon, `failed` if it is not valid; `message` says until when it is. */
  readonly state: 'ok' | 'warning' | 'failed'
  readonly message: string
}

/** The requests of each of the last 300 seconds, oldest first. */
export interface CallCounts {
  readonly requests: readonly number[]
  /** The requests that limits refused, and those with a status of 500 or above. */
  readonly refused: readonly number[]
  readonly failed: readonly number[]
}

/** The state of a process, or of all: the gauges of `/metrics` and the console show it. */
export interface Status {
  /** Processes that serve callers. */
  readonly workers: number
  /** Processes that count in the same Redis; null with counters in memory. */
  readonly gateways: number | null
  /** Open sockets of callers. */
  readonly sockets: number
  readonly calls: CallCounts
  readonly store: StoreStatus
  /** False if the overrides were read neither from Redis nor from `store.overridesFile`, in any process. */
  readonly overridesKnown: boolean
  readonly upstreams: readonly UpstreamStatus[]
  readonly issuers: readonly IssuerStatus[]
  readonly certificates: readonly CertificateStatus[]
  /** Calls since the start that shadow limits would have refused. */
  readonly shadowOver: readonly { readonly limit: string; readonly calls: number }[]
}

/** Merges the states of several processes with the same configuration: adds up numbers, and shows the worst. */
export function mergeStatus(all: readonly Status[]): Status {
  const gateways = all.flatMap((status) => status.gateways ?? [])
  const stores = all.map(({ store }) => store)
  const instants = stores.map(({ lastWithoutRedis }) => lastWithoutRedis ?? '')
  const callsOf = (name: keyof CallCounts) => addUp(all.map(({ calls }) => calls[name]))
  return {
    workers: sum(all.map(({ workers }) => workers)),
    gateways: gateways.length === 0 ? null : Math.max(...gateways),
    sockets: sum(all.map(({ sockets }) => sockets)),
    calls: { requests: callsOf('requests'), refused: callsOf('refused'), failed: callsOf('failed') },
    store: {
      modes: [...new Set(stores.flatMap(({ modes }) => modes))],
      withoutRedis: sum(stores.map(({ withoutRedis }) => withoutRedis)),
      lastWithoutRedis: instants.toSorted().at(-1) || null,
      outage: stores.find(({ outage }) => outage !== null)?.outage ?? null,
    },
    overridesKnown: all.every(({ overridesKnown }) => overridesKnown),
    upstreams: mergeLists(all, 'upstreams', ['upstream', 'address'], (a, b) => ({
      ...a,
      up: a.up && b.up,
      sockets: a.sockets + b.sockets,
      maxSockets: a.maxSockets + b.maxSockets,
      queue: a.queue + b.queue,
      waiting: a.waiting + b.waiting,
      oldestWaitSeconds: Math.max(a.oldestWaitSeconds, b.oldestWaitSeconds),
      webSockets: a.webSockets + b.webSockets,
    })),
    issuers: mergeLists(all, 'issuers', ['issuer'], (a, b) => ({
      ...a,
      ageSeconds: Math.max(a.ageSeconds, b.ageSeconds),
      failures: a.failures + b.failures,
      introspectionUp: a.introspectionUp && b.introspectionUp,
    })),
    certificates: all[0]?.certificates ?? [],
    shadowOver: mergeLists(all, 'shadowOver', ['limit'], addCalls),
  }
}
