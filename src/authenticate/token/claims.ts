const UNSOUND = /[\p{Surrogate}\p{Cc}]/u

/** Is this a NumericDate (RFC 7519 section 2): seconds, fractions allowed? */
export function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

const CLIENT_ID = /^.{1,255}$/su

/** Is this the id of a client: a name of 1 to 255 characters? */
export function isClientId(value: unknown): value is string {
  return isName(value) && CLIENT_ID.test(value)
}

/** Is this a name? It has no control characters, and two strings that differ in lone surrogates only would be one in UTF-8. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !UNSOUND.test(value)
}
