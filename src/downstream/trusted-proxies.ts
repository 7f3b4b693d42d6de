import { BlockList, isIP } from 'node:net'
import { plainAddress } from './address.ts'

/** Most addresses of `X-Forwarded-For` that are looked at: each costs far more than its bytes. */
const MOST_HOPS = 100

/** The far ends of sockets: whom they are, and whether they may speak for others. */
export interface Peers {
  /** Is this peer one of `listen.trustedProxies`? */
  trusts(peer: string): boolean
  /** The caller's address: the peer, or the last untrusted address that trusted proxies report. */
  caller(peer: string, forwardedFor: string | undefined): string
}

const familyOf = (address: string) => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

/** Knows the trusted proxies given as CIDR blocks. */
export function createPeers(trustedProxies: readonly string[]): Peers {
  const trusted = new BlockList()
  for (const block of trustedProxies) {
    const [address, length] = block.split('/') as [string, string]
    const bits = Number(length)
    const plain = plainAddress(address)
    // The 96 bits of an IPv6 prefix that stand before an IPv4 address are gone with it.
    if (plain !== address && bits >= 96) trusted.addSubnet(plain, bits - 96, 'ipv4')
    else trusted.addSubnet(address, bits, familyOf(address))
  }
  const none = trustedProxies.length === 0
  const trusts = (peer: string): boolean => {
    if (none) return false
    const plain = plainAddress(peer)
    return isIP(plain) !== 0 && trusted.check(plain, familyOf(plain))
  }
  return {
    trusts,
    caller(peer, forwardedFor) {
      if (forwardedFor === undefined || !trusts(peer)) return peer
      const chain = forwardedFor.split(',')
      let caller = peer
      for (const written of chain.slice(-MOST_HOPS).toReversed()) {
        const hop = plainAddress(withoutPort(written.trim()))
        // What stands before an address that is none was written by somebody untrusted.
        if (isIP(hop) === 0) break
        caller = hop
        if (!trusts(hop)) break
      }
      return caller
    },
  }
}

/** Some proxies write `1.2.3.4:5678`, or `[2001:db8::1]:5678`. */
function withoutPort(hop: string): string {
  return /^\[(.*)\](?::\d+)?$/.exec(hop)?.[1] ?? /^([\d.]+):\d+$/.exec(hop)?.[1] ?? hop
}
