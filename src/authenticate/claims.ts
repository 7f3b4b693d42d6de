const LONE_SURROGATE = /\p{Surrogate}/u

/** Is this a NumericDate (RFC 7519 section 2): seconds, fractions allowed? */
export function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

/** Is this a name? Two strings that differ in lone surrogates only would be one in UTF-8. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !LONE_SURROGATE.test(value)
}
