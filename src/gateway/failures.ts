import { LRUCache } from 'lru-cache'
import { Refusal } from '../errors.ts'
import { atMost } from '../runtime/at-most.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { ipPart } from '../policy/key.ts'
import { add, CallLog, frameAt, growsAt, usedIn } from '../limit/memory/call-log.ts'

/**
 * The failures of addresses, counted only in this process, under the limit in force. An IPv6
 * address counts as its /64.
 */
export type Failures = ReturnType<ReturnType<typeof createFailures>>

/** Maximum addresses with failures; the address that failed longest ago is evicted first. */
const MAX_ADDRESSES = 10_000

/** The metrics that count failures, and requests of addresses with too many. */
type FailureCounters = Readonly<Record<'failures' | 'failuresRefused', { inc(): void }>>

/**
 * Creates the log of failures. Returns the function that applies a limit to it: an address with
 * `limit` failures in a window is refused.
 */
export function createFailures(counters: FailureCounters, clock = SYSTEM_CLOCK) {
  const logs = new LRUCache<string, CallLog>(atMost(MAX_ADDRESSES))
  const nowUs = (): number => Math.round(clock.now() * 1000)

  return (rule: { readonly limit: number; readonly windowMs: number }) => {
    const { limit } = rule
    /**
     * Returns a 429 with the rate-limit fields of the failures (RFC 6585 section 4) if the address
     * failed too often.
     */
    function refusal(ip: string): Refusal | undefined {
      const log = logs.size === 0 ? undefined : logs.peek(ipPart(ip))
      if (log === undefined) return undefined
      const at = nowUs()
      const frame = frameAt(limit, rule, at, 0)
      if (usedIn(log, frame) < limit) return undefined
      const waitMs = (growsAt(log, frame) - at) / 1000
      const secs = Math.max(1, Math.ceil(waitMs / 1000))
      counters.failuresRefused.inc()
      return new Refusal('TooManyRequests', 'Too many requests from this address have failed.', {
        headers: {
          'X-RateLimit-Limit': String(limit),
          'X-RateLimit-Remaining': '0',
          'X-RateLimit-Reset': instant(clock.date() + waitMs),
          'Retry-After': String(secs),
        },
        retryAfterSecs: secs,
      })
    }
    /** Counts one failure; returns the 429 instead if other failures have reached the limit during the request. */
    function count(ip: string): Refusal | undefined {
      const refused = refusal(ip)
      if (refused !== undefined) return refused
      const key = ipPart(ip)
      const log = logs.get(key) ?? new CallLog()
      logs.set(key, log)
      add(log, frameAt(limit, rule, nowUs(), 0))
      counters.failures.inc()
      return undefined
    }
    return { refusal, count }
  }
}
