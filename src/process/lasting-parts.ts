import { createActivity } from '../admin/overview/callers.ts'
import { createLastMinute } from '../admin/overview/last-minute.ts'
import type { Config } from '../config/config.ts'
import type { Exchange } from '../gateway/exchange.ts'
import { Reserves } from '../gateway/reserves.ts'
import { limitNameOf } from '../limit/key.ts'
import { createLimiter } from '../limit/limiter.ts'
import { createAccessLog } from '../observe/access-log.ts'
import type { LogOutput } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { createShownRequest } from '../observe/personal-data.ts'
import { showKey } from '../policy/caller-keys.ts'
import type { Clock } from '../runtime/clock.ts'
import { openStore } from './open-store.ts'

/**
 * Opens the parts that outlive a reload: what counts calls, and what observes requests. `inForce`
 * returns the configuration that a reload replaces. Rejects with a message for the operator.
 */
export async function openLastingParts(
  started: Config,
  inForce: () => Config,
  output: LogOutput,
  metrics: Metrics,
  clock: Clock,
) {
  const { log } = output
  const shown = createShownRequest(started.log)
  const tracing =
    started.tracing && (await import('../observe/tracing.ts')).createTracing(started.tracing, log, shown)
  const showKeyNow = (key: string): string => showKeyOf(inForce(), key, started.log.ip !== 'full')
  const texts = { showKey: showKeyNow, callerText: shown.callerText }
  const opened = await openStore(started, log, metrics, texts, clock)
  const limiter = createLimiter(opened.store, metrics.decisions.inc, clock)
  const reserves = new Reserves()
  const activity = createActivity()
  const lastMinute = createLastMinute(metrics)
  const accessLog = createAccessLog(output, metrics, activity.count, started.log.refusals, shown)
  function observe(exchange: Exchange): void {
    // First: log and metrics name the trace.
    tracing?.end(exchange)
    accessLog.observe(exchange)
  }
  return { shown, tracing, opened, limiter, reserves, activity, lastMinute, accessLog, observe }
}

/** Returns a key as it may be logged. */
function showKeyOf({ limits, prefix }: Config, key: string, masksIp: boolean): string {
  const limit = limits.find(({ name }) => name === limitNameOf(key))
  return limit === undefined ? key : showKey(prefix, limit, key, masksIp)
}
