/** Maximum points of one call: a terabyte in bytes. */
export const MAX_POINTS = 2 ** 40

/** Maximum characters of a number. */
const MAX_CHARS = 100

/** A number of JSON (RFC 8259 section 6). */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/

/** Bytes of a point of `bytes`. */
const KILOBYTE = 1024

/**
 * Returns the points of a number, also of one that is written as in JSON; a fraction is rounded up.
 * Returns undefined for another text, a number below 0, and one above `MAX_POINTS`.
 */
export function pointsOf(value: number | string): number | undefined {
  const number = typeof value === 'number' ? value : numberOf(value)
  if (number === undefined || number < 0 || number > MAX_POINTS) return undefined
  // Plus 0, because -0 would be sent as it is.
  return Math.ceil(number) + 0
}

/** Returns the number of a text as in JSON; undefined if it is none. */
const numberOf = (text: string): number | undefined =>
  text.length > MAX_CHARS || !NUMBER.test(text) ? undefined : Number(text)

/** Returns the points of a number of bytes: one for each 1024 that are begun. */
export const pointsOfBytes = (bytes: number): number => Math.min(MAX_POINTS, Math.ceil(bytes / KILOBYTE))
