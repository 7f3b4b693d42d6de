import type { Config } from '../../config/config.ts'
import type { LogEvent } from '../../observe/log.ts'
import type { Status } from '../../observe/status.ts'
import type { ListedOverride } from '../../policy/overrides.ts'
import type { ActivityValues } from './activity.ts'
import type { MinuteCounts } from './last-minute.ts'

/** The gateway as the overview reads it: one process, or several, whose values are merged. */
export interface OverviewSource {
  /** Returns why the gateway should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  status(): Status | Promise<Status>
  activity(): ActivityValues | Promise<ActivityValues>
  lastMinute(): MinuteCounts | Promise<MinuteCounts>
  /** Returns the latest events of all processes, in any order. */
  events(): readonly LogEvent[] | Promise<readonly LogEvent[]>
  /** Returns the overrides in force; rejects while no process serves. */
  overrides(): Promise<readonly ListedOverride[]>
  /**
   * Sends the id and the summary of this gateway to the others, as JSON, and returns theirs, with
   * the milliseconds since they were sent, if `isShown`. Otherwise sends it only while the others
   * show it, and returns none. Rejects if Redis does not answer, and without Redis.
   */
  shareSummary(sent: {
    readonly id: string
    readonly summary: string
    readonly isShown: boolean
  }): Promise<readonly { readonly summary: string; readonly ageMs: number }[]>
}

/** The configuration in force. */
export interface ConfigurationInForce {
  config(): Config
  /** Returns the SHA-256 of the file; null without a file. */
  hash(): string | null
  /** The latest reloads, newest first. */
  readonly reloads: readonly ReloadRecord[]
  /** Returns the mistakes of teams' files that are left out, one per line. */
  leftOut(): readonly string[]
  /** Returns when the configuration was kept, in epoch milliseconds; null unless it is that of `configuration.keep`. */
  keptAt(): number | null
}

/** The outcome of a reload, which was rejected if it has problems; `at` is ISO 8601. */
export interface ReloadRecord {
  readonly at: string
  /** Hash of the text that is in force afterwards. */
  readonly hash: string
  readonly problems: readonly string[]
  readonly changes: readonly string[]
}
