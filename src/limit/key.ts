import { createHash } from 'node:crypto'
import { networkOf } from '../downstream/trusted-proxies.ts'
import { foldCase } from '../downstream/target.ts'

/** The parts that keys are made of: encoded so that none can imitate another, end its own, or enter the hash tag. */

/** Longest part in UTF-8 bytes before encoding; a longer one is replaced by its hash. */
const MAX_BYTES = 256
/** What stands for the empty part: alone, `%` begins no escape. */
const EMPTY = '%'
/** What stands before a hash: `#` is always escaped in a part. */
const HASHED = '#'

/** The ASCII characters that a part may carry raw: no delimiter of keys, no glob, nothing that a terminal obeys. */
const RAW = new Uint8Array(128)
for (const char of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()+,;=@|/") {
  RAW[char.charCodeAt(0)] = 1
}

/** What the keys of a store start with, as configured, or `sluice` in memory. */
export function prefixOf(store: 'memory' | { readonly prefix: string }): string {
  return store === 'memory' ? 'sluice' : store.prefix
}

/** A part that is compared exactly, such as a client id. */
export function encodePart(part: string): string {
  const { length } = part
  if (length === 0) return EMPTY
  if (length > MAX_BYTES) return hashed(escaped(part))
  for (let i = 0; i < length; i++) {
    const code = part.charCodeAt(i)
    if (code > 127 || RAW[code] === 0) return encodeSlowly(part)
  }
  return part
}

/** A path parameter in canonical spelling, percent-encoded: without regard to case. */
export function paramPart(segment: string): string {
  return encodePart(foldCase(segment))
}

/** An address: IPv6 by its /64, but as IPv4 where it stands for one. */
export function ipPart(ip: string): string {
  return encodePart(networkOf(ip))
}

function encodeSlowly(part: string): string {
  const encoded = escaped(part)
  return part.length * 3 > MAX_BYTES && byteLength(part) > MAX_BYTES ? hashed(encoded) : encoded
}

function hashed(encoded: string): string {
  return HASHED + createHash('sha256').update(encoded).digest('hex')
}

function byteLength(part: string): number {
  return Buffer.byteLength(part)
}

/** Percent-encodes the UTF-8 bytes. A lone surrogate becomes the three bytes that no valid UTF-8 has, so it stays itself. */
function escaped(part: string): string {
  let out = ''
  for (let i = 0; i < part.length; i++) {
    const code = part.codePointAt(i)!
    if (code < 0x80) {
      out += RAW[code] === 1 ? part[i]! : escape(code)
    } else if (code < 0x800) {
      out += escape(0xc0 | (code >> 6)) + escape(0x80 | (code & 63))
    } else if (code < 0x1_00_00) {
      out += escape(0xe0 | (code >> 12)) + escape(0x80 | ((code >> 6) & 63)) + escape(0x80 | (code & 63))
    } else {
      out +=
        escape(0xf0 | (code >> 18)) +
        escape(0x80 | ((code >> 12) & 63)) +
        escape(0x80 | ((code >> 6) & 63)) +
        escape(0x80 | (code & 63))
      i++
    }
  }
  return out
}

function escape(byte: number): string {
  return (byte < 16 ? '%0' : '%') + byte.toString(16).toUpperCase()
}
