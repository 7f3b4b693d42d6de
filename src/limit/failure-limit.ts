import { LRUCache } from 'lru-cache'
import { type Refusal, tooManyRequests } from '../errors.ts'
import { ipPart } from './key.ts'
import { add, type CallLog, createCallLog, growsAt, viewAt } from './memory/call-log.ts'

/** The failures of addresses, counted only in this process. An IPv6 address counts as its /64. */
export type Failures = ReturnType<ReturnType<typeof createFailures>>

/** Called for each failure that is counted, and for each request that is refused because of earlier ones. */
export interface FailureEvents {
  onCounted(): void
  onRefused(): void
}

/** Addresses that are held; the one that failed longest ago is dropped first. */
const MAX_ADDRESSES = 10_000

/**
 * Refuses an address that failed `limit` times in a window, until the oldest failure has left the window. The failures stay
 * when the limit changes. `now` is in milliseconds and never goes back.
 */
export function createFailures(events: FailureEvents, now = () => performance.now()) {
  const logs = new LRUCache<string, CallLog>({ max: MAX_ADDRESSES })
  const nowUs = (): number => Math.round(now() * 1000)

  return ({ limit, windowMs }: { readonly limit: number; readonly windowMs: number }) => {
    const windowUs = windowMs * 1000
    /** Returns a 429 with the rate-limit fields of the failures (RFC 6585 section 4) if the address failed too often. */
    function refusal(ip: string): Refusal | undefined {
      const log = logs.size === 0 ? undefined : logs.peek(ipPart(ip))
      if (log === undefined) return undefined
      const at = nowUs()
      const view = viewAt(log, windowUs, at)
      if (view.used < limit) return undefined
      const waitMs = (growsAt(log, view, limit, windowUs, at) - at) / 1000
      const secs = Math.max(1, Math.ceil(waitMs / 1000))
      events.onRefused()
      return tooManyRequests('Too many requests from this address have failed.', {
        headers: {
          'X-RateLimit-Limit': String(limit),
          'X-RateLimit-Remaining': '0',
          'X-RateLimit-Reset': new Date(Date.now() + waitMs).toISOString(),
          'Retry-After': String(secs),
        },
        retryAfterSecs: secs,
      })
    }
    return {
      refusal,
      /** Counts one failure; returns the 429 instead if the address had failed too often, with other requests in progress. */
      count(ip: string): Refusal | undefined {
        const refused = refusal(ip)
        if (refused !== undefined) return refused
        const key = ipPart(ip)
        const log = logs.get(key) ?? createCallLog()
        logs.set(key, log)
        const at = nowUs()
        add(log, viewAt(log, windowUs, at), limit, windowUs, at)
        events.onCounted()
        return undefined
      },
    }
  }
}
