import { hash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** The beginning of every key that `sluice keys create` makes. */
const PREFIX = 'slk_'
/** Bytes of a key that are random: 160 bits cannot be guessed, also not from its hash. */
const RANDOM_BYTES = 20
/** Digits of base32 (RFC 4648 section 6) in lower case: none is easily taken for another. */
const DIGITS = 'abcdefghijklmnopqrstuvwxyz234567'
const RANDOM_LENGTH = 32
/** Digits for the 32 bits of a CRC. */
const CHECKSUM_LENGTH = 7
const CHECKED_LENGTH = PREFIX.length + RANDOM_LENGTH
const KEY_LENGTH = CHECKED_LENGTH + CHECKSUM_LENGTH

/** The form of a key that `sluice keys create` made, as an expression. */
const KEY = `${PREFIX}[a-z2-7]{${RANDOM_LENGTH + CHECKSUM_LENGTH}}`

/** Matches such a key, anywhere in a text: for scanners that find leaked secrets. */
export const KEY_IN_TEXT = new RegExp(`\\b${KEY}\\b`)

const ALL_KEYS = new RegExp(KEY, 'g')

/** Returns a text, such as a path into which a caller put its key, without the keys of `sluice keys create`. */
export const withoutKeys = (text: string): string =>
  text.includes(PREFIX) ? text.replaceAll(ALL_KEYS, `${PREFIX}…`) : text

/** Maximum length of a key, in characters; those of other gateways are shorter. */
const MAX_KEY = 256
const FIRST_PRINTABLE = 0x21
const LAST_PRINTABLE = 0x7e

/** Creates a key: a prefix, 160 random bits and a checksum. */
export function createKeyText(): string {
  const checked = PREFIX + toBase32(randomBytes(RANDOM_BYTES))
  return checked + checksumOf(checked)
}

/** Returns the SHA-256 of a key in hex, by which it is kept and found. */
export const hashOfKey = (key: string): string => hash('sha256', key, 'hex')

/** True for 1 to 256 printable ASCII characters without blanks: servers read all others in several ways. */
export function isKeyText(text: string): boolean {
  if (text.length === 0 || text.length > MAX_KEY) return false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code < FIRST_PRINTABLE || code > LAST_PRINTABLE) return false
  }
  return true
}

/**
 * True for a text that begins like a key of `sluice keys create`, and is not one: it was cut,
 * mistyped or made up. A key from elsewhere has no checksum.
 */
export function isMistyped(text: string): boolean {
  if (!text.startsWith(PREFIX)) return false
  return text.length !== KEY_LENGTH || !text.endsWith(checksumOf(text.slice(0, CHECKED_LENGTH)))
}

function checksumOf(text: string): string {
  const checksum = Buffer.alloc(4)
  checksum.writeUInt32BE(crc32(text))
  return toBase32(checksum)
}

/** Encodes bytes in base32 without padding. */
function toBase32(bytes: Uint8Array): string {
  let text = ''
  let bits = 0
  let value = 0
  for (const byte of bytes) {
    value = (value << 8) | byte
    bits += 8
    for (; bits >= 5; bits -= 5) text += DIGITS[(value >>> (bits - 5)) & 31]!
    value &= 31
  }
  return bits === 0 ? text : text + DIGITS[(value << (5 - bits)) & 31]!
}
