import { hash } from 'node:crypto'
import { memoize } from '../runtime/memoize.ts'

/** Stands for the rest of a secret value. */
export const SHORTENED = '…'
const SHOWN_CHARS = 4
const SHOWN_HEX_DIGITS = 8
const HEX_DIGITS = 64
const MAX_LENGTH = 256
/** Maximum secret values whose digests are cached. */
const MAX_CACHED = 10_000

/** Matches a high surrogate at the end. */
const HALF_PAIR = /[\ud800-\udbff]$/
const DIGEST = /^[^]{0,4}…[\da-f]{64}$/
const SHORT_FORM = /^[^]{0,4}…[\da-f]{8}$/

/**
 * Returns the digest of a secret value, by which limits count it: its first characters and its whole
 * SHA-256, so that two values never share a counter.
 */
export const digestOf = memoize(
  (value) => `${beginningOf(value)}${SHORTENED}${hash('sha256', value)}`,
  MAX_CACHED,
  MAX_LENGTH,
)

/**
 * Returns the first characters of a secret value. None of a value that has no others, and no half of
 * a surrogate pair, which has no UTF-8.
 */
function beginningOf(value: string): string {
  if (value.length <= SHOWN_CHARS) return ''
  return value.slice(0, SHOWN_CHARS).replace(HALF_PAIR, '')
}

/** True for what `digestOf` returns. */
export const isDigest = (value: string): boolean => DIGEST.test(value)

/** True for what `shortFormOf` and `shortenDigest` return. */
export const isShortForm = (value: string): boolean => SHORT_FORM.test(value)

/**
 * Returns the value of a header field or a token as it may be shown: its first characters, and the
 * first digits of its SHA-256.
 */
export const shortFormOf = memoize(
  (value) => `${value.slice(0, SHOWN_CHARS)}${SHORTENED}${hash('sha256', value).slice(0, SHOWN_HEX_DIGITS)}`,
  MAX_CACHED,
  MAX_LENGTH,
)

/** Returns a digest as it may be shown, in the same form. */
export const shortenDigest = (digest: string): string => digest.slice(0, SHOWN_HEX_DIGITS - HEX_DIGITS)
