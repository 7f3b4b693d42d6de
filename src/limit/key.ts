// oxlint-disable-next-line no-restricted-imports -- a hash is pure
import { createHash } from 'node:crypto'
import { networkOf } from '../downstream/addresses.ts'
import { foldCase } from '../downstream/target.ts'
import type { Limit } from './limit.ts'

/** Longest part in UTF-8 bytes before encoding; a longer one is replaced by its hash. */
const MAX_BYTES = 256
/** Precedes a hash: `#` is always escaped in a part. */
const HASHED = '#'

/** The ASCII characters that stay unescaped in a part: no delimiter of keys, no glob, no control character. */
const RAW = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()+,;=@|/"
/** What each byte is encoded to; a raw one has length 1. */
const ENCODED = Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte)
  return RAW.includes(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
})

/** Returns what the keys of a store start with: as configured, or `sluice` in memory. */
export function prefixOf(store: 'memory' | { readonly prefix: string }): string {
  return store === 'memory' ? 'sluice' : store.prefix
}

/** Encodes an exactly compared part, such as a client id: none can imitate another, end a part, or enter the hash tag. */
export function encodePart(part: string): string {
  const { length } = part
  // A lone `%` begins no escape.
  if (length === 0) return '%'
  if (length > MAX_BYTES) return encodeSlowly(part)
  for (let i = 0; i < length; i++) {
    const code = part.charCodeAt(i)
    if (code > 127 || ENCODED[code]!.length > 1) return encodeSlowly(part)
  }
  return part
}

/** Encodes a path parameter in canonical spelling, percent-encoded, ignoring case. */
export const paramPart = (segment: string): string => encodePart(foldCase(segment))

/** Encodes an address: IPv6 by its /64, or as IPv4 if it stands for one. */
export const ipPart = (ip: string): string => encodePart(networkOf(ip))

function encodeSlowly(part: string): string {
  const bytes = Buffer.from(part)
  // UTF-8 has no lone surrogates, and one must not become another.
  if (bytes.length > part.length && /\p{Surrogate}/u.test(part)) {
    return hashed(HASHED + Buffer.from(part, 'utf16le').toString('hex'))
  }
  let encoded = ''
  for (const byte of bytes) encoded += ENCODED[byte]!
  return bytes.length > MAX_BYTES ? hashed(encoded) : encoded
}

function hashed(encoded: string): string {
  return HASHED + createHash('sha256').update(encoded).digest('hex')
}

/** A set of keys of a store. */
export interface KeyFilter {
  /** Those with a known name. */
  readonly named: readonly string[]
  /** A glob that all others match, beside keys that are not of the set; undefined if there are none. */
  readonly glob: string | undefined
  matches(key: string): boolean
}

/** Returns the keys of a client under these limits, wherever in the key the client is. */
export function clientKeys(limits: readonly Limit[], prefix: string, client: string): KeyFilter {
  const wanted = encodePart(client)
  const mine = limits.filter(({ per }) => per.includes('client'))
  const further = mine.filter(({ per }) => per.length > 1)
  const positions = new Map(
    mine.map(({ name, per }) => [name, per.flatMap((part, at) => (part === 'client' ? [at] : []))]),
  )
  const literalPrefix = prefix.replaceAll(/[*?[\]\\]/g, String.raw`\$&`)
  const isFirst = further.every(({ per }) => per[0] === 'client')
  const glob = isFirst ? `${literalPrefix}:{${wanted}}:*` : `${literalPrefix}:*${wanted}*`
  return {
    named: mine.filter(({ per }) => per.length === 1).map(({ name }) => `${prefix}:{${wanted}}:${name}`),
    glob: further.length > 0 ? glob : undefined,
    matches(key) {
      const parsed = parseKey(prefix, key)
      if (parsed === undefined) return false
      return positions.get(parsed.name)?.every((at) => parsed.parts[at] === wanted) ?? false
    },
  }
}

/** Returns the limit and the encoded parts of a key; undefined if it does not start with the prefix. */
export function parseKey(prefix: string, key: string) {
  const end = key.indexOf('}:', prefix.length)
  if (end === -1 || !key.startsWith(`${prefix}:{`)) return undefined
  const [name, ...rest] = key.slice(end + 2).split(':')
  return { name: name!, parts: [key.slice(prefix.length + 2, end), ...rest] }
}
