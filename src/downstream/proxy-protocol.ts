import { isIP } from 'node:net'
import { canonicalAddress } from '../runtime/address.ts'

/** A header of the PROXY protocol, versions 1 and 2 (haproxy.org, proxy-protocol.txt). */
export interface ProxyHeader {
  readonly bytes: number
  /** The address of the caller; undefined if the header has none: `UNKNOWN`, `LOCAL`, or neither IPv4 nor IPv6. */
  readonly address: string | undefined
}

const START_V1 = Buffer.from('PROXY ')
/** Maximum bytes of version 1, with its line end. */
const MAX_V1 = 107
const LINE_V1 = /^PROXY TCP([46]) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) (\d{1,5}) (\d{1,5})$/
const UNKNOWN_V1 = /^PROXY UNKNOWN(?: .*)?$/

const START_V2 = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1')
/** Bytes before the addresses of version 2. */
const HEAD_V2 = 16
/** Maximum bytes of version 2: its extensions (TLVs) may hold a certificate's name, a cookie or cloud ids. */
const MAX_V2 = 4096
/** Bytes of both addresses and ports, by the byte of the family and the transport. */
const SIZES_V2: ReadonlyMap<number, number> = new Map([
  [0x11, 12],
  [0x21, 36],
])
/** Unspecified, UDP and Unix sockets: their addresses, if any, are not those of a TCP caller. */
const WITHOUT_ADDRESS_V2: ReadonlySet<number> = new Set([0x00, 0x12, 0x22, 0x31, 0x32])

/**
 * Parses the header at the start of a connection. Returns undefined while more bytes are needed, and
 * says what is wrong with another start: the connection must be closed.
 */
export function parseProxyHeader(received: Buffer): ProxyHeader | string | undefined {
  if (startsLike(received, START_V2)) return parseV2(received)
  if (startsLike(received, START_V1)) return parseV1(received)
  return 'no PROXY header'
}

/** True if the bytes that have come are those of `start`, as far as both go. */
function startsLike(received: Buffer, start: Buffer): boolean {
  const length = Math.min(received.length, start.length)
  return received.subarray(0, length).equals(start.subarray(0, length))
}

function parseV1(received: Buffer): ProxyHeader | string | undefined {
  const end = received.subarray(0, MAX_V1).indexOf('\r\n')
  if (end === -1) return received.length < MAX_V1 ? undefined : `a PROXY line of more than ${MAX_V1} bytes`
  const line = received.toString('latin1', 0, end)
  const bytes = end + 2
  if (UNKNOWN_V1.test(line)) return { bytes, address: undefined }
  const [, family, source = '', destination = '', ...ports] = LINE_V1.exec(line) ?? []
  const isValid =
    isIP(source) === Number(family) &&
    isIP(destination) === Number(family) &&
    ports.every((port) => Number(port) <= 65_535)
  return isValid ? { bytes, address: canonicalAddress(source) } : 'a malformed PROXY line'
}

function parseV2(received: Buffer): ProxyHeader | string | undefined {
  if (received.length < HEAD_V2) return undefined
  const command = received[12]!
  const family = received[13]!
  const bytes = HEAD_V2 + received.readUInt16BE(14)
  const size = SIZES_V2.get(family)
  const isLocal = command === 0x20
  if (!isLocal && command !== 0x21) return 'an unknown version or command of the PROXY protocol'
  if (bytes > MAX_V2) return `a PROXY header of more than ${MAX_V2} bytes`
  if (received.length < bytes) return undefined
  if (isLocal || WITHOUT_ADDRESS_V2.has(family)) return { bytes, address: undefined }
  if (size === undefined) return 'an unknown address family of the PROXY protocol'
  if (bytes < HEAD_V2 + size) return 'a PROXY header that is too short for its addresses'
  return { bytes, address: readAddress(received.subarray(HEAD_V2, HEAD_V2 + (size === 12 ? 4 : 16))) }
}

function readAddress(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join('.')
  const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(2 * i).toString(16))
  return canonicalAddress(groups.join(':'))
}
