import { LRUCache } from 'lru-cache'
import { type Refusal, tooManyRequests } from '../errors.ts'
import { ipPart } from './key.ts'
import { add, createRing, growsAt, type Ring, type View, viewAt } from './memory/ring.ts'

/** Failures that one address may have in any window; beyond that it is refused until the oldest has left the window. */
export interface FailureLimit {
  readonly limit: number
  readonly windowMs: number
}

/** The failures of addresses, counted only in this process. An IPv6 address counts as its /64. */
export interface Failures {
  /** Returns a 429 with `Retry-After` (RFC 6585 section 4) if the address failed too often. */
  refusal(ip: string): Refusal | undefined
  /** Counts one failure; returns the 429 instead if the address had failed too often, with other requests in progress. */
  count(ip: string): Refusal | undefined
}

/** Addresses that are held; the one that failed longest ago is dropped first. */
const MAX_ADDRESSES = 10_000

/** Counts failures, which stay when the limit changes. `now` is in milliseconds and never goes back. */
export function createFailures(now = () => performance.now()): (limit: FailureLimit) => Failures {
  const rings = new LRUCache<string, Ring>({ max: MAX_ADDRESSES })
  const nowUs = (): number => Math.round(now() * 1000)

  return ({ limit, windowMs }) => {
    const windowUs = windowMs * 1000
    function refusalOf(ring: Ring, view: View, at: number): Refusal | undefined {
      if (view.used < limit) return undefined
      const waitUs = growsAt(ring, view, limit, windowUs, at) - at
      const retryAfterSecs = Math.max(1, Math.ceil(waitUs / 1_000_000))
      return tooManyRequests('Too many requests from this address have failed.', {
        headers: { 'Retry-After': String(retryAfterSecs) },
        retryAfterSecs,
      })
    }
    return {
      refusal(ip) {
        if (rings.size === 0) return undefined
        const ring = rings.peek(ipPart(ip))
        if (ring === undefined) return undefined
        const at = nowUs()
        return refusalOf(ring, viewAt(ring, windowUs, at), at)
      },
      count(ip) {
        const key = ipPart(ip)
        let ring = rings.get(key)
        if (ring === undefined) rings.set(key, (ring = createRing()))
        const at = nowUs()
        const view = viewAt(ring, windowUs, at)
        const refusal = refusalOf(ring, view, at)
        if (refusal === undefined) add(ring, view, limit, windowUs, at)
        return refusal
      },
    }
  }
}
