import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/** A block of addresses: those that share the first `bits` bits with an address. */
type Block = [first: ipaddr.IPv6, bits: number]

const LOOPBACK = ['::1/128', '::ffff:127.0.0.0/104'].map((range) => ipaddr.IPv6.parseCIDR(range))
/** IPv6 ranges that embed IPv4: addresses of dual-stack sockets (RFC 4291), and NAT64 (RFC 6052 section 2.1). */
const EMBEDS_IPV4 = ['::ffff:0:0/96', '64:ff9b::/96'].map((range) => ipaddr.IPv6.parseCIDR(range))

/** Parses an address, IPv4 as `::ffff:1.2.3.4`; returns undefined for anything else. */
function parseAddress(text: string): ipaddr.IPv6 | undefined {
  const version = isIP(text)
  if (version === 0) return undefined
  if (version === 4) return ipaddr.IPv6.parse(`::ffff:${text}`)
  // ipaddr.js rejects some zones that Node.js accepts, and parses `::1.2.3.4` as `::ffff:1.2.3.4`.
  return ipaddr.IPv6.parse(text.replace(/%.*/, '').replace(/^::(?=\d+\.)/, '0::'))
}

/** True if a text is an address in one of the blocks. An IPv4 address is in the block of its mapped one. */
export function isInBlocks(text: string, blocks: readonly Block[]): boolean {
  const address = parseAddress(text)
  return address !== undefined && blocks.some((block) => address.match(block))
}

/** Parses a valid CIDR block; one that embeds IPv4 becomes the block of IPv4. */
export function parseBlock(cidr: string): Block {
  const [address, length] = cidr.split('/') as [string, string]
  const bits = Number(length) + (isIP(address) === 4 ? 96 : 0)
  return [parseAddress(bits < 96 ? address : normalizeAddress(address))!, bits]
}

/** Returns the IPv4 address that an IPv6 address embeds; any other text unchanged. */
export function normalizeAddress(address: string): string {
  if (!address.includes(':') || !isInBlocks(address, EMBEDS_IPV4)) return address
  return parseAddress(address)!.toByteArray().slice(12).join('.')
}

/** Returns the usual spelling of a valid address (RFC 5952 section 4), as that of a socket. */
export const canonicalAddress = (address: string): string =>
  address.includes(':') ? parseAddress(address)!.toRFC5952String() : address

/** Returns the part that addresses of one owner share: the /64 of IPv6, else the IPv4 address. */
export function networkOf(ip: string): string {
  const address = normalizeAddress(ip)
  const groups = address.includes(':') ? parseAddress(address)?.parts.slice(0, 4) : undefined
  return groups ? `${groups.map((group) => group.toString(16)).join('-')}/64` : address
}

/**
 * Returns the network of an address: the /24 of IPv4, the /48 of IPv6, as the IP anonymisation of
 * Google Analytics, which clears the last octet or the last 80 bits. Empty for anything else.
 */
export function truncateAddress(ip: string): string {
  const address = normalizeAddress(ip)
  if (isIP(address) === 4) return `${address.split('.').slice(0, 3).join('.')}.0/24`
  const groups = parseAddress(address)?.parts.slice(0, 3)
  return groups === undefined ? '' : `${new ipaddr.IPv6([...groups, 0, 0, 0, 0, 0]).toRFC5952String()}/48`
}

/** True if a host, an address without brackets or a name, is reached only from this machine. */
export const isLoopback = (host: string): boolean =>
  host.toLowerCase() === 'localhost' || isInBlocks(host, LOOPBACK)
