import type { Clock } from '../../runtime/clock.ts'
import type { openClient } from './client.ts'
import type { StoreConfigError } from './diagnose.ts'
import type { RedisConfig } from './options.ts'

export interface RedisStoreOptions extends RedisConfig {
  readonly prefix: string
  /** Timeout of a script call. A call that Redis reads later is not charged. */
  readonly timeoutMs?: number
  /** The gateway; random by default. */
  readonly id?: string
  /** Changes the scripts in tests. */
  readonly edit?: (script: string) => string
  readonly clock?: Clock
  /** Replaces the connection by ioredis in the simulation. */
  readonly open?: typeof openClient
  readonly onLost?: () => void
  /** Called once if Redis contradicts the configuration, at `connect` only if this may pass. */
  readonly onMisconfigured?: (error: StoreConfigError) => void
  /** Called with the reason if a server is unavailable at `connect`. */
  readonly onUnavailable?: (cause: Error) => void
  /** Called with a fault of a Redis that can be used; once unless the fault changes. */
  readonly onWarning?: (warning: string) => void
  /** Called when the clock of a server is right again, after a warning. */
  readonly onClockRight?: (server: string) => void
  /** Called when Redis lost its data, with the time whose calls are lost, in epoch milliseconds of Redis's clock. */
  readonly onEmptied?: (countedUntil: number, emptySince: number) => void
  /**
   * Called when Redis returned with old data: calls counted after `countedUntil`, at least until
   * `lostUntil`, are lost. Epoch milliseconds of Redis's clock; 0 if unknown.
   */
  readonly onOutdated?: (countedUntil: number, lostUntil: number) => void
  /** Called when a server lost data, in either of these ways. */
  readonly onLoss?: (server: string) => void
}
