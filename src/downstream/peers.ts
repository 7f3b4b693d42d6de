import { isIP } from 'node:net'
import { isInBlocks, normalizeAddress, parseBlock } from '../runtime/address.ts'
import { memoize } from '../runtime/memoize.ts'

/** An address with the port that some proxies add: `1.2.3.4:5678`, or `[2001:db8::1]:5678`. */
const HOP = /^(?:\[(.*)\]|([\d.]+))(?::\d+)?$/
/** Maximum addresses of `X-Forwarded-For` that are parsed. */
const MAX_HOPS = 100

/** Decides which peers are trusted proxies, and who calls through them. */
export interface Peers {
  /** True if the address of a peer is in a block of `listen.trustedProxies`. */
  trusts(peer: string): boolean
  /**
   * Returns the caller's address: the peer's, or the last untrusted address that trusted proxies
   * report. With `10.0.0.0/8` trusted, `9.9.9.9, 10.0.0.2` from 10.0.0.1 is a call of 9.9.9.9;
   * `1.2.3.4` before it would not count, as 9.9.9.9 wrote it. `fromProxy` is what `trusts` says,
   * unless the caller of the function knows better.
   */
  caller(peer: string, forwardedFor: string | undefined, fromProxy?: boolean): string
}

/** Creates the peer policy; `trustedProxies` are CIDR blocks. */
export function createPeers(trustedProxies: readonly string[]): Peers {
  const blocks = trustedProxies.map(parseBlock)
  const isTrusted = memoize((peer) => isInBlocks(normalizeAddress(peer), blocks), 10_000, 45)
  // Without trusted proxies, no address of a caller is normalised or kept.
  const trusts = blocks.length === 0 ? () => false : isTrusted
  return {
    trusts,
    caller(peer, forwardedFor, fromProxy = trusts(peer)) {
      if (forwardedFor === undefined || !fromProxy) return peer
      let caller = peer
      for (const written of forwardedFor.split(',').slice(-MAX_HOPS).toReversed()) {
        const hop = normalizeAddress(written.trim().replace(HOP, '$1$2'))
        // A trusted proxy writes only addresses: ignore everything before this value.
        if (isIP(hop) === 0) break
        caller = hop
        if (!trusts(hop)) break
      }
      return caller
    },
  }
}
