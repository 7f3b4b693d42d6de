import type { Keys } from '../authenticate/token/jwks.ts'
import type { Refusal } from '../errors.ts'
import { invalidRequest } from './form.ts'

/** The settings of a client; what is left out is not checked. */
export interface ParClient {
  readonly id: string
  /** How it authenticates, by the names of RFC 7591 section 2. */
  readonly authentication?: string | undefined
  /** The algorithm of its request objects; undefined and `none` require nothing. */
  readonly requestObjectSigningAlg?: string | undefined
  /** If set, its requests at the authorisation endpoint carry a pushed `request_uri` (RFC 9126 section 6). */
  readonly pushed?: 'required' | undefined
  readonly keys?: Keys | undefined
}

/** The clients whose settings are known. */
export interface ParClients {
  /** Returns the settings of a client; undefined if it is not listed. */
  clientOf(id: string): ParClient | undefined
  /** True if an id that is not listed is a listed client's in another spelling. */
  isLookAlike(id: string): boolean
}

/** RFC 6749 appendix A.1. */
const CLIENT_ID = /^[ -~]{1,255}$/

/** Returns a 400 for a malformed client id, so that nothing else has to read it. */
export function refuseClientId(id: string): Refusal | undefined {
  if (CLIENT_ID.test(id)) return undefined
  return invalidRequest('The client_id must be 1 to 255 printable ASCII characters.')
}

/** Returns the settings of a client, undefined if it is not listed, or a 400 for another spelling of a listed one. */
export function findClient(
  { clientOf, isLookAlike }: ParClients,
  id: string,
): ParClient | Refusal | undefined {
  const client = clientOf(id)
  if (client !== undefined || !isLookAlike(id)) return client
  return invalidRequest('The client_id is not spelt as it is registered.')
}

const UUID_MARKS = /^urn:uuid:|[-{}()]/g

/** Returns a client id as a lenient database might compare it: without blanks and case, and a UUID with its usual hyphens. */
export function foldClientId(id: string): string {
  const folded = id.replaceAll(/\s/g, '').toLowerCase()
  const digits = folded.replaceAll(UUID_MARKS, '')
  return /^[\da-f]{32}$/.test(digits) ? digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-') : folded
}
