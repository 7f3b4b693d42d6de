import { createHash } from 'node:crypto'
import { networkOf } from '../runtime/address.ts'
import { decodeSegment, foldCase } from '../downstream/target.ts'
import { leasesName } from '../limit/key.ts'
import { memoize } from '../runtime/memoize.ts'
import { digestOf } from './secret-values.ts'
import { wordOf } from './words.ts'

/** Maximum UTF-8 bytes of a part; a longer part is replaced by its hash. */
const MAX_BYTES = 256
/**
 * Matches a part that is its own encoding: no delimiters of keys, glob characters or control
 * characters.
 */
const UNESCAPED = /^[\w.~!$&'()+,;=@|/-]{1,256}$/
const ENCODED = Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte)
  return UNESCAPED.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
})

/** The name of a limit, and the parts of its keys. */
export interface KeyedLimit {
  readonly name: string
  /** The parts of the key, in order: words of `words.ts`, and names of path parameters. */
  readonly per: readonly string[]
  /**
   * The limit whose counter this one, its share, bounds by its own number of calls; undefined if it
   * has a counter itself.
   */
  readonly counts?: string
  /**
   * Calls within these milliseconds of a charged call, or with a token that was charged, belong to
   * its access, and pass free.
   */
  readonly together?: number | 'token' | undefined
  /** True if the limit bounds the calls in progress. */
  readonly isConcurrent?: boolean
}

/** Returns the name of the limit that has the counter. */
export const counterNameOf = ({ name, counts = name }: KeyedLimit): string => counts

/** Returns the name in the keys of a limit. */
export const nameInKeys = (limit: KeyedLimit): string =>
  limit.isConcurrent ? leasesName(limit.name) : counterNameOf(limit)

export const isPerClient = ({ per }: KeyedLimit): boolean => per.length === 1 && per[0] === 'client'

/**
 * Encodes a part that is compared exactly, such as a client id: different parts differently,
 * without delimiters and braces.
 */
export function encodePart(part: string): string {
  if (UNESCAPED.test(part)) return part
  // A `%` without digits is never an escape.
  if (part === '') return '%'
  // Ids and claims have no lone surrogates, which would all be the same in UTF-8 (`isName`).
  const bytes = Buffer.from(part)
  let encoded = ''
  for (const byte of bytes) encoded += ENCODED[byte]!
  if (bytes.length <= MAX_BYTES) return encoded
  // Encodings without a hash escape every `#`.
  return `#${createHash('sha256').update(encoded).digest('hex')}`
}

/** Decodes a part; a hash stays, and what another program wrote. */
export function decodePart(part: string): string {
  if (part === '%') return ''
  return part.startsWith('#') ? part : decodeSegment(part)
}

/** Encodes a canonical, percent-encoded path parameter, ignoring case. */
export const paramPart = (segment: string): string => encodePart(foldCase(segment))

/** Encodes an address: IPv6 by its /64, or as IPv4 if it maps one. */
export const ipPart = (ip: string): string => encodePart(networkOf(ip))

const routePart = memoize(encodePart, 1000, 1000)

/** Returns the function that encodes the values of a part, those of a secret part as digests. */
export function encoderOf(part: string, isSecret = false): (value: string) => string {
  const { compares, from } = wordOf(part)
  if (compares === 'network') return ipPart
  if (from === 'route') return routePart
  const isFolded = compares === 'folded'
  if (!isSecret) return isFolded ? paramPart : encodePart
  return (value) => encodePart(digestOf(isFolded ? foldCase(value) : value))
}
