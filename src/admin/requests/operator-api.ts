import type { MetricsFormat } from '../../observe/open-metrics.ts'
import type { CountedCaller } from '../../policy/counted-caller.ts'
import type { FoundCaller } from '../../policy/found-caller.ts'
import type { OverviewSource } from '../overview/source.ts'
import type { CallerUsage } from './counters.ts'
import type { DecidedLimit, Explained } from './explained.ts'

/** The parameters of `/explain`. */
export const PARAMETERS = ['request', 'host', 'client', 'user', 'ip', 'headers', 'claims', 'at'] as const

/**
 * A request to explain: `request` is `[METHOD] [host]/path`, or has a URL; `headers` and `claims`
 * (of the token) are JSON objects; `at` is ISO 8601.
 */
export type RequestLine = { request: string } & Partial<Record<(typeof PARAMETERS)[number], string>>

/** Overrides that an operator sets or removes for one caller. */
export interface Setting {
  readonly caller: CountedCaller
  /** The calls by the name of the limit; null removes the override. */
  readonly set: Readonly<Record<string, number | null>>
  /** Epoch milliseconds; null for no end. */
  readonly untilAt: number | null
  /** The name of the operator whom the admin listener has recognised. */
  readonly by: string
  readonly note: string | undefined
}

/** The report on a caller's limits for operators: the counters, and sentences about them. */
export type CallerReport = CallerUsage & { readonly notes: readonly string[] }

export interface ResetResult {
  readonly caller: string
  /** The number of deleted counters. */
  readonly freed: number
  /** True if a limit of calls at once counts by the caller, whose calls in progress keep their places. */
  readonly keepsPlaces: boolean
}

/** The response to a change, with the name of the operator who made it. */
export type Changed<Result> = Result & { readonly by: string }

/** The limits of a caller before and after a `Setting`. */
export interface SettingResult {
  /** The caller as it may be shown. */
  readonly caller: string
  /** Null for a limit that the configuration does not have. */
  readonly limits: readonly ({ name: string } & Record<'before' | 'after', DecidedLimit | null>)[]
  /** True if all gateways share the overrides; false if only this process keeps them, until it exits. */
  readonly shared: boolean
  /** True if the caller is a listed client or has counted calls, so that it is probably written right. */
  readonly seen: boolean
}

/**
 * The requests of operators to the gateway, which may be several processes. Those about limits
 * reject with an InvalidQuestion, and if the store does not answer.
 */
export interface OperatorApi extends OverviewSource {
  /** Returns the metrics of all processes. */
  metrics(format: MetricsFormat): Promise<string>
  usage(caller: CountedCaller, signal: AbortSignal): Promise<CallerReport>
  /** Deletes the counters of a caller. */
  reset(caller: CountedCaller, signal: AbortSignal): Promise<ResetResult>
  /** Finds the caller with an override, or of the last minute, that is shown as this text. */
  findCaller(shown: string): FoundCaller | Promise<FoundCaller>
  /** Finds the part of such callers that is shown as this text, as a caller of its own. */
  findPart(shown: string): FoundCaller | Promise<FoundCaller>
  /** Sets and removes overrides of a caller atomically. */
  setLimits(setting: Setting): Promise<SettingResult>
  /** Explains a request, with the counted calls unless it is explained for another instant. */
  explain(line: RequestLine): Promise<Explained>
}
