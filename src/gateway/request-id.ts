import { randomBytes } from 'node:crypto'
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
const HEX = /(.{8})(.{4}).(.{3}).(.{3})(.{12})/g
const UUID_LENGTH = 36
let uuids = ''
let next = 0

/**
 * Returns a random UUID (RFC 9562 section 5.4) of those that are made at once, in one text.
 * `randomUUID` for each: 0.5 kB of garbage (`npm run bench -- --rows garbage`).
 */
function nextUuid(): string {
  if (next === uuids.length) {
    const bytes = randomBytes(UUIDS * 16).toString('hex')
    uuids = bytes.replace(HEX, '$1-$2-4$3-a$4-$5')
    next = 0
  }
  return uuids.slice(next, (next += UUID_LENGTH))
}
