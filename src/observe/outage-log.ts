import type { Mode, OutageChange } from '../limit/fallback/breakers.ts'
import type { OutageMode } from '../limit/quota.ts'
import { instant } from '../runtime/instant.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import { type StoreStatus, WITHOUT_REDIS } from './status.ts'

/**
 * Pauses before a log line about decisions of the fallback while Redis is available: before the
 * first, and before the next.
 */
const LATE_LOG_MS = [1000, 10_000] as const

/**
 * Creates the log of outages, and of the decisions that were made without Redis. `onAvailable` is
 * called when Redis is available again: what the fallback refused may pass.
 */
export function createOutageLog(onOutage: OutageMode, onAvailable: () => void, log: Log, metrics: Metrics) {
  metrics.fallbackDecisions.inc({ mode: onOutage }, 0)
  let withoutRedis = 0
  let lastWithoutRedis: string | null = null
  let outage: StoreStatus['outage'] = null
  /** Decisions without Redis that are not logged yet, and the cause of the last. */
  let unlogged = 0
  let lastCause: string | undefined
  /** Set while decisions wait for their log line. */
  let logging: NodeJS.Timeout | undefined
  let loggedAt = -Infinity

  /**
   * Logs the decisions of the fallback while Redis is available: late answers, mostly. Those of an
   * outage are logged at its end.
   */
  function logLate(): void {
    if (outage !== null) return
    const fields = { mode: onOutage, decisions: unlogged, cause: lastCause }
    log.warn(fields, 'decisions made without Redis')
    loggedAt = performance.now()
    resume()
  }
  /** Begins again after the decisions of the fallback were logged. */
  function resume(): void {
    onAvailable()
    unlogged = 0
    lastCause = undefined
    clearTimeout(logging)
    logging = undefined
  }

  return {
    /** Counts a decision of the fallback. */
    decided(mode: OutageMode, cause: Error | undefined): void {
      metrics.fallbackDecisions.inc({ mode })
      lastWithoutRedis = instant(Date.now())
      withoutRedis++
      unlogged++
      lastCause = cause?.message ?? lastCause
      if (logging !== undefined || outage !== null) return
      const [first, next] = LATE_LOG_MS
      logging = setTimeout(logLate, performance.now() - loggedAt < next ? next : first).unref()
    },
    /** Logs that a server of Redis is down or up again. */
    changed({ mode, server, degraded, cause }: OutageChange): void {
      if (!degraded) outage = null
      else outage ??= { since: instant(Date.now()), text: WITHOUT_REDIS[onOutage] }
      if (mode === 'store') {
        log.info({ server, mode, decisions: unlogged }, 'Redis available again')
        resume()
      }
      // A StoreConfigError is logged where it is found.
      else if (cause?.name !== 'StoreConfigError')
        log.warn({ server, mode, cause: cause?.message }, `Redis unavailable; ${WITHOUT_REDIS[mode]}`)
    },
    status(): StoreStatus {
      const modes: Mode[] = outage === null ? ['store'] : [onOutage]
      if (outage === null && logging !== undefined) modes.push(onOutage)
      return { modes, withoutRedis, lastWithoutRedis, outage }
    },
  }
}
