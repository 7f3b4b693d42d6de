const LONE_SURROGATE = /\p{Surrogate}/u

/** Is this a NumericDate (RFC 7519 section 2): seconds, fractions allowed? */
export function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

const CLIENT_ID = /^\P{Cc}{1,255}$/u

/** Is this the id of a client: a name of 1 to 255 characters, none of them a control character? */
export function isClientId(value: unknown): value is string {
  return isName(value) && CLIENT_ID.test(value)
}

/** Is this a name? Two strings that differ in lone surrogates only would be one in UTF-8. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !LONE_SURROGATE.test(value)
}
