import { BlockList, isIP, isIPv6 } from 'node:net'

/** Some proxies write `1.2.3.4:5678`, or `[2001:db8::1]:5678`. */
const HOP = /^(?:\[(.*)\]|([\d.]+))(?::\d+)?$/

/** Most addresses of `X-Forwarded-For` that are read: each costs far more than its bytes. */
const MAX_HOPS = 100

const familyOf = (address: string) => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

/** Returns what knows the trusted proxies, given as CIDR blocks, and the callers behind them. */
export function createPeers(trustedProxies: readonly string[]) {
  const trusted = new BlockList()
  for (const block of trustedProxies) {
    const [address, length] = block.split('/') as [string, string]
    const bits = Number(length)
    const plain = normalizeAddress(address)
    // The 96 bits of an IPv6 prefix that stand before an IPv4 address are gone with it.
    if (plain !== address && bits >= 96) trusted.addSubnet(plain, bits - 96, 'ipv4')
    else trusted.addSubnet(address, bits, familyOf(address))
  }
  const none = trustedProxies.length === 0
  const trusts = (peer: string): boolean => {
    const plain = none ? '' : normalizeAddress(peer)
    return isIP(plain) !== 0 && trusted.check(plain, familyOf(plain))
  }
  return {
    trusts,
    /** Returns the caller's address: the peer's, or the last untrusted address that trusted proxies report. */
    caller(peer: string, forwardedFor: string | undefined): string {
      if (forwardedFor === undefined || !trusts(peer)) return peer
      const chain = forwardedFor.split(',')
      let caller = peer
      for (const written of chain.slice(-MAX_HOPS).toReversed()) {
        const hop = normalizeAddress(written.trim().replace(HOP, '$1$2'))
        // What stands before something that is no address is not a trusted proxy's.
        if (isIP(hop) === 0) break
        caller = hop
        if (!trusts(hop)) break
      }
      return caller
    },
  }
}

export type Peers = ReturnType<typeof createPeers>

/** What precedes an IPv4 address in an IPv6 one: of dual-stack sockets (RFC 4291), and of NAT64 (RFC 6052 section 2.1). */
const BEFORE_IPV4: ReadonlySet<string> = new Set(['0:0:0:0:0:ffff', '64:ff9b:0:0:0:0'])

/** Returns an address as IPv4 if it is an IPv6 one that stands for that, else unchanged. */
export function normalizeAddress(address: string): string {
  const groups = ipv6Groups(address)
  if (groups === undefined || !BEFORE_IPV4.has(groups.slice(0, 6).join(':'))) return address
  const [high, low] = groups.slice(6).map((group) => Number.parseInt(group, 16)) as [number, number]
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
}

/** Returns what addresses of one owner share: an IPv6 address's /64, else the address, as IPv4 where it stands for one. */
export function networkOf(ip: string): string {
  const plain = normalizeAddress(ip)
  const groups = ipv6Groups(plain)
  return groups === undefined ? plain : `${groups.slice(0, 4).join('-')}/64`
}

/** Parses the eight groups of an IPv6 address, in hexadecimal digits; undefined for anything else. */
function ipv6Groups(ip: string): readonly string[] | undefined {
  if (!ip.includes(':') || !isIPv6(ip)) return undefined
  const [address] = ip.split('%', 1) as [string]
  // Normalised, with no dotted part and no group in full that `::` stands for.
  const halves = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::')
  const [head = [], tail = []] = halves.map((half) => half.split(':').filter(Boolean))
  return [...head, ...Array.from({ length: 8 - head.length - tail.length }, () => '0'), ...tail]
}
