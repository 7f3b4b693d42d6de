// oxlint-disable-next-line no-restricted-imports -- a hash is pure
import { createHash } from 'node:crypto'
import { networkOf } from '../downstream/peers.ts'
import { foldCase } from '../downstream/target.ts'

/** Maximum UTF-8 bytes of a part; a longer part is replaced by its hash. */
const MAX_BYTES = 256
/** Matches a part that is its own encoding: no delimiters of keys, glob characters or control characters. */
const UNESCAPED = /^[\w.~!$&'()+,;=@|/-]{1,256}$/
const ENCODED = Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte)
  return UNESCAPED.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
})

/** The name of a limit, and the parts of its keys. */
export interface KeyedLimit {
  readonly name: string
  /** The parts of the key, in order: `client`, `user`, `ip`, `route`, `token`, `claim:NAME`, `header:NAME`, or the name of a path parameter. */
  readonly per: readonly string[]
  /**
   * Calls within these milliseconds of a charged call, or with a token that was charged, belong to its access, and pass free.
   * Keys of accesses have the limit's name with a `~`.
   */
  readonly together?: number | 'token'
}

export const isPerClient = ({ per }: KeyedLimit): boolean => per.length === 1 && per[0] === 'client'

/** Returns the prefix of a store's keys: as configured, or `sluice` in memory. */
export const prefixOf = (store: 'memory' | { readonly prefix: string }): string =>
  store === 'memory' ? 'sluice' : store.prefix

/** Encodes a part that is compared exactly, such as a client id: different parts differently, without delimiters and braces. */
export function encodePart(part: string): string {
  if (UNESCAPED.test(part)) return part
  // A `%` without digits is never an escape.
  if (part === '') return '%'
  const bytes = Buffer.from(part)
  // UTF-8 replaces lone surrogates, which would make different parts equal.
  const isLossy = bytes.length > part.length && /\p{Surrogate}/u.test(part)
  let encoded = isLossy ? `#${Buffer.from(part, 'utf16le').toString('hex')}` : ''
  if (!isLossy) for (const byte of bytes) encoded += ENCODED[byte]!
  if (!isLossy && bytes.length <= MAX_BYTES) return encoded
  // Encodings without a hash escape every `#`.
  return `#${createHash('sha256').update(encoded).digest('hex')}`
}

/** Encodes a canonical, percent-encoded path parameter, ignoring case. */
export const paramPart = (segment: string): string => encodePart(foldCase(segment))

/** Encodes an address: IPv6 by its /64, or as IPv4 if it maps one. */
export const ipPart = (ip: string): string => encodePart(networkOf(ip))

export interface KeyFilter {
  /** The keys whose names are known. */
  readonly named: readonly string[]
  /** A glob that matches all other keys of the set, and keys that are not; undefined if there are no others. */
  readonly glob: string | undefined
  matches(key: string): boolean
}

/** Returns the key of a client under a limit that is counted only per client. */
export const clientKey = (prefix: string, client: string, name: string): string =>
  `${prefix}:{${encodePart(client)}}:${name}`

/** Returns the key of an access under a limit: the limit's name is followed by `~`, which no name of a limit contains. */
export function accessKey(key: string, name: string, token?: string): string {
  // No part of a key contains a brace.
  const end = key.lastIndexOf('}:') + 2 + name.length
  return `${key.slice(0, end)}~${key.slice(end)}${token === undefined ? '' : `:${token}`}`
}

/** Returns the key of a DPoP proof, beside the keys of the limit whose first part is `first`. */
export const proofKey = (prefix: string, first: string, id: string): string =>
  `${prefix}:{${first}}:~proof:${id}`

/** Returns the key that holds the number of the last merge of a gateway into a key. */
export const mergedKey = (key: string, gateway: string): string =>
  `${key.slice(0, key.lastIndexOf('}:') + 2)}~merged:${gateway}:${key.slice(key.lastIndexOf('}:') + 2)}`

/** Returns the keys of the registrations of gateways, and of the instant since which a server has its data, in the hash slot of a tag. */
export const registrationKeys = (prefix: string, tag: string): readonly [gateways: string, since: string] => [
  `${prefix}:{${tag}}:~gateways`,
  `${prefix}:{${tag}}:~since`,
]

/** Returns the keys of a client under these limits, also those that do not begin with the client, and with or without those of accesses. */
export function clientKeys(
  limits: readonly KeyedLimit[],
  prefix: string,
  client: string,
  withAccesses = true,
): KeyFilter {
  const wanted = encodePart(client)
  const mine = limits.filter(({ per }) => per.includes('client'))
  const further = mine.filter(
    ({ per, together }) => per.length > 1 || (withAccesses && together !== undefined),
  )
  const perOf = new Map(mine.map(({ name, per }) => [name, per]))
  const literalPrefix = prefix.replaceAll(/[*?[\]\\]/g, String.raw`\$&`)
  const isFirst = further.every(({ per }) => per[0] === 'client')
  const glob = isFirst ? `${literalPrefix}:{${wanted}}:*` : `${literalPrefix}:*${wanted}*`
  return {
    named: mine.filter(isPerClient).map(({ name }) => clientKey(prefix, client, name)),
    glob: further.length > 0 ? glob : undefined,
    matches(key) {
      const { name = '', parts = [] } = parseKey(prefix, key) ?? {}
      const own = withAccesses ? name.replace(/~$/, '') : name
      return perOf.get(own)?.every((part, i) => part !== 'client' || parts[i] === wanted) ?? false
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
