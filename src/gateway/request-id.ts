import { randomFillSync } from 'node:crypto'
import { withoutKeys } from '../authenticate/key/key-text.ts'

/**
 * A caller's request id, which is kept so that one id follows a call through all systems. The
 * access log writes it unescaped.
 */
const REQUEST_ID = /^[A-Za-z0-9._~+/=:@-]{1,128}$/

/** True for a well-formed request id. */
export const isRequestId = (text: string): boolean => REQUEST_ID.test(text)

/**
 * Returns the request id that a caller sent; a random one if it sent none, or one that is not well
 * formed or has an API key.
 */
export const requestIdOf = (sent: unknown): string =>
  typeof sent === 'string' && isRequestId(sent) && withoutKeys(sent) === sent ? sent : nextUuid()

const UUIDS = 64
const UUID_BYTES = 16
const UUID_LENGTH = 36
const DIGITS = Buffer.from('0123456789abcdef')
const DASH = '-'.charCodeAt(0)
const random = Buffer.alloc(UUIDS * UUID_BYTES)
const rendered = Buffer.alloc(UUIDS * UUID_LENGTH)
let uuids = ''
let next = 0

/**
 * Returns a random UUID of those that are made at once, in one text. `randomUUID` for each: 0.5 kB of
 * garbage (`npm run bench -- --rows garbage`).
 */
function nextUuid(): string {
  if (next === uuids.length) {
    uuids = randomUuids()
    next = 0
  }
  return uuids.slice(next, (next += UUID_LENGTH))
}

/** Returns `UUIDS` random UUIDs as one text, with nothing between two (RFC 9562 section 5.4). */
function randomUuids(): string {
  randomFillSync(random)
  let at = 0
  for (let i = 0; i < random.length; i++) {
    const position = i % UUID_BYTES
    const hasDash = position === 4 || position === 6 || position === 8 || position === 10
    if (hasDash) rendered[at++] = DASH
    const byte = withVersion(random[i]!, position)
    rendered[at++] = DIGITS[byte >> 4]!
    rendered[at++] = DIGITS[byte & 0xf]!
  }
  return rendered.toString('latin1')
}

/** Sets the version of a UUID in its seventh byte, and the variant, with two bits more, in its ninth. */
function withVersion(byte: number, position: number): number {
  if (position === 6) return 0x40 | (byte & 0x0f)
  return position === 8 ? 0xa0 | (byte & 0x0f) : byte
}
