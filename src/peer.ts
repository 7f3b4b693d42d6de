import { BlockList, isIP } from 'node:net'

/** Most addresses of `X-Forwarded-For` that are looked at: each costs far more than its bytes. */
const MOST_HOPS = 100

/** The far ends of sockets: whom they are, and whether they may speak for others. */
export interface Peers {
  /** Is this peer one of `listen.trustedProxies`? */
  trusts(peer: string): boolean
  /** The caller's address: the peer, or the last untrusted address that trusted proxies report. */
  caller(peer: string, forwardedFor: string | undefined): string
}

/** Knows the trusted proxies given as addresses or CIDR blocks. */
export function createPeers(trustedProxies: readonly string[]): Peers {
  const trusted = new BlockList()
  for (const block of trustedProxies) {
    const [address, bits] = block.split('/') as [string, string | undefined]
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    if (bits === undefined) trusted.addAddress(address, family)
    else trusted.addSubnet(address, Number(bits), family)
  }
  const none = trustedProxies.length === 0
  const trusts = (peer: string): boolean => {
    if (none) return false
    const version = isIP(peer)
    return version !== 0 && trusted.check(peer, version === 6 ? 'ipv6' : 'ipv4')
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

/** An address without the IPv4-mapped prefix of dual-stack sockets. */
export function plainAddress(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address
}
