import { LRUCache } from 'lru-cache'
import { Refusal } from '../errors.ts'
import { ipPart } from './key.ts'
import { add, createRing, growsAt, type Ring, type View, viewAt } from './memory/ring.ts'

/** So many failures of one address in any window; then it is turned away until the oldest has left the window. */
export interface FailureLimit {
  readonly limit: number
  readonly windowMs: number
}

/** The failures of addresses, counted in this process alone. An IPv6 address stands for its /64. */
export interface Failures {
  /** 429 with `Retry-After` (RFC 6585 section 4) where the address has failed too often; undefined where it may try. */
  refusal(ip: string): Refusal | undefined
  /**
   * Counts one failure, so that the caller may be told of it; the refusal where the address had failed too often already, with
   * others that were under way beside it.
   */
  count(ip: string): Refusal | undefined
}

/** Most addresses that are held; the one that failed longest ago goes first. */
const MAX_ADDRESSES = 10_000

/** Counts failures; what was counted stays when the limit is another one. `now` never goes back; milliseconds. */
export function createFailures(now = () => performance.now()): (limit: FailureLimit) => Failures {
  const rings = new LRUCache<string, Ring>({ max: MAX_ADDRESSES })
  const nowUs = (): number => Math.round(now() * 1000)

  return ({ limit, windowMs }) => {
    const windowUs = windowMs * 1000
    const refusalOf = (ring: Ring, view: View, at: number): Refusal | undefined =>
      view.used < limit
        ? undefined
        : tooMany(Math.ceil((growsAt(ring, view, limit, windowUs, at) - at) / 1_000_000))
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

function tooMany(seconds: number): Refusal {
  const retryAfterSecs = Math.max(1, seconds)
  return new Refusal('TooManyRequests', 'Too many requests from this address have failed.', {
    headers: { 'Retry-After': String(retryAfterSecs) },
    retryAfterSecs,
  })
}
