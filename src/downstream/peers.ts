import type { IncomingMessage } from 'node:http'
import { isIP, type Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import ipaddr from 'ipaddr.js'
import { memoize } from '../runtime/hot-path.ts'
import { decodeSegment } from './target.ts'

/** An address with the port that some proxies add: `1.2.3.4:5678`, or `[2001:db8::1]:5678`. */
const HOP = /^(?:\[(.*)\]|([\d.]+))(?::\d+)?$/
/** Maximum addresses of `X-Forwarded-For` that are parsed. */
const MAX_HOPS = 100

const LOOPBACK = ['::1/128', '::ffff:127.0.0.0/104'].map((range) => ipaddr.IPv6.parseCIDR(range))
/** IPv6 ranges that embed IPv4: addresses of dual-stack sockets (RFC 4291), and NAT64 (RFC 6052 section 2.1). */
const EMBEDS_IPV4 = ['::ffff:0:0/96', '64:ff9b::/96'].map((range) => ipaddr.IPv6.parseCIDR(range))

/** Parses an address, IPv4 as `::ffff:1.2.3.4`; returns undefined for anything else. */
function parse(text: string): ipaddr.IPv6 | undefined {
  const version = isIP(text)
  if (version === 0) return undefined
  if (version === 4) return ipaddr.IPv6.parse(`::ffff:${text}`)
  // ipaddr.js rejects some zones that Node.js accepts, and parses `::1.2.3.4` as `::ffff:1.2.3.4`.
  return ipaddr.IPv6.parse(text.replace(/%.*/, '').replace(/^::(?=\d+\.)/, '0::'))
}

const isIn = (address: ipaddr.IPv6 | undefined, ranges: readonly [ipaddr.IPv6, number][]): boolean =>
  address !== undefined && ranges.some((range) => address.match(range))

/** Returns the IPv4 address that an IPv6 address embeds; any other text unchanged. */
export function normalizeAddress(address: string): string {
  const ipv6 = address.includes(':') ? parse(address) : undefined
  return ipv6 && isIn(ipv6, EMBEDS_IPV4) ? ipv6.toByteArray().slice(12).join('.') : address
}

/** Returns the part that addresses of one owner share: the /64 of IPv6, else the IPv4 address. */
export function networkOf(ip: string): string {
  const address = normalizeAddress(ip)
  const groups = address.includes(':') ? parse(address)?.parts.slice(0, 4) : undefined
  return groups ? `${groups.map((group) => group.toString(16)).join('-')}/64` : address
}

/** True if a host, an address without brackets or a name, is reached only from this machine. */
export const isLoopback = (host: string): boolean =>
  host.toLowerCase() === 'localhost' || isIn(parse(host), LOOPBACK)

/** Creates the peer policy: which peers are trusted proxies (CIDR blocks), and which address is the caller's. */
export function createPeers(trustedProxies: readonly string[]) {
  const ranges = trustedProxies.map((block): [ipaddr.IPv6, number] => {
    const [address, length] = block.split('/') as [string, string]
    const bits = Number(length) + (isIP(address) === 4 ? 96 : 0)
    return [parse(bits < 96 ? address : normalizeAddress(address))!, bits]
  })
  const isTrusted = memoize((peer) => isIn(parse(normalizeAddress(peer)), ranges), 10_000, 45)
  const trusts = (peer: string): boolean => ranges.length > 0 && isTrusted(peer)
  return {
    trusts,
    /** Returns the caller's address: the peer's, or the last untrusted address that trusted proxies report. */
    caller(peer: string, forwardedFor: string | undefined, fromProxy = trusts(peer)): string {
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

export type Peers = ReturnType<typeof createPeers>

/**
 * Returns the certificate of a TLS client in DER, from `Client-Cert` if a trusted proxy sends the
 * request, else from the socket.
 */
export function clientCertificate({ socket, headers }: IncomingMessage, trusted: boolean) {
  if (trusted) return readCertificateHeader(headers['client-cert'])
  return socket instanceof TLSSocket ? certificateOf(socket)?.der : undefined
}

const certificates = new WeakMap<TLSSocket, { readonly der: Buffer; readonly field: string }>()

/** Reads the certificate of a socket, and the `Client-Cert` field for it (RFC 9440 section 2.1), once. */
function certificateOf(socket: TLSSocket) {
  const der = certificates.has(socket) ? undefined : socket.getPeerX509Certificate()?.raw
  if (der !== undefined) certificates.set(socket, { der, field: `:${der.toString('base64')}:` })
  return certificates.get(socket)
}

/** Returns the `Client-Cert` field for a certificate of `clientCa`; an upstream could trust the names in any other. */
export const certificateField = (socket: Socket): string | undefined =>
  socket instanceof TLSSocket && socket.authorized ? certificateOf(socket)?.field : undefined

const PEM = /^-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/**
 * Parses a `Client-Cert` field: a byte sequence (RFC 9440 section 2.1), or the forms of older
 * proxies: bare base64, or URL-encoded PEM (the first of a chain).
 */
export function readCertificateHeader(value: string | string[] | undefined): Buffer | undefined {
  if (typeof value !== 'string') return undefined
  const text = decodeSegment(value.trim())
  const body = PEM.exec(text)?.[1] ?? text.replace(/^:(.*):$/, '$1')
  const base64 = body.replace(/\s/g, '')
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined
}
