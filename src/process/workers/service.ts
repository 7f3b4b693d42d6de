import type { Config } from '../../config/schema.ts'
import type { ClientUsage } from '../../limit/usage.ts'

/** What serves callers: this process, or several that share its port. */
export interface Service {
  /** Where callers are served, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** Why calls cannot be decided as configured; undefined where they can. */
  unready(): string | undefined | Promise<string | undefined>
  /** Puts a configuration into force, whole or not at all; requests under way end with the one before. */
  apply(config: Config): void | Promise<void>
  /** The text of `/metrics`. */
  metrics(): Promise<string>
  /** What a client has used of its limits; rejects where the store cannot be asked. */
  usage(client: string, signal: AbortSignal): Promise<ClientUsage>
  /** Frees what is counted of a client: how many keys; rejects where the store cannot be asked. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Ends it all; how many requests had to be cut. */
  close(times: DrainTimes): Promise<number>
}

/** How a service ends: milliseconds. */
export interface DrainTimes {
  /** In which new requests are still taken, so that a load balancer can see the failing readiness. */
  readonly lameDuckMs: number
  /** In which requests under way may end, the lame duck's time among it. */
  readonly drainTimeoutMs: number
}
