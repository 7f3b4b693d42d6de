import type { Keys } from '../authenticate/token/jwks.ts'
import { invalidRequest } from './form.ts'

/** The settings of a client; a missing setting is not checked. */
export interface ParClient {
  readonly id: string
  /** Authentication method, by the names of RFC 7591 section 2. */
  readonly authentication?: string | undefined
  /** The algorithm of its request objects; undefined and `none` require nothing. */
  readonly requestObjectSigningAlg?: string | undefined
  /**
   * If set, its requests at the authorisation endpoint contain a pushed `request_uri` (RFC 9126
   * section 6).
   */
  readonly pushed?: 'required' | undefined
  readonly keys?: Keys | undefined
}

/** The clients with settings, and the rules for their JWTs. */
export interface ParRules {
  /** Returns the settings of a client; undefined if it is not listed. */
  clientOf(id: string): ParClient | undefined
  /** Returns true if an id that is not listed is another spelling of a listed one. */
  isLookAlike(id: string): boolean
  /** The beginning of a `request_uri` that the PAR endpoint issues: a URN (RFC 9126 section 2.2). */
  readonly requestUri: string
  /** The audience of JWTs. */
  readonly issuer: string
  /** Audiences that `compatible` accepts in assertions in addition to the issuer. */
  readonly audiences: readonly string[]
  /**
   * `compatible` accepts any of these audiences (RFC 9126 section 2); `strict` only the issuer (RFC
   * 10070, FAPI 2).
   */
  readonly assertionAudience: 'compatible' | 'strict'
  /** Treatment of unlisted clients whose form is valid. */
  readonly unknownClients: 'forward' | 'refuse'
  readonly leewayMs: number
}

/** RFC 6749 appendix A.1. */
const CLIENT_ID = /^[ -~]{1,255}$/

/**
 * Returns the settings of a client, if listed, or a 400 for a malformed id or a listed one's other
 * spelling. Calls `onClaim` with a well-formed id.
 */
export function findClient(rules: ParRules, id: string, onClaim?: (id: string) => void) {
  if (!CLIENT_ID.test(id)) return invalidRequest('The client_id must be 1 to 255 printable ASCII characters.')
  onClaim?.(id)
  const client = rules.clientOf(id)
  if (client !== undefined || !rules.isLookAlike(id)) return client
  return invalidRequest('The client_id is not spelt as it is registered.')
}

const UUID_MARKS = /^urn:uuid:|[-{}()]/g

/**
 * Returns a client id as a lenient database might compare it: without blanks and case, and a UUID
 * with its usual hyphens.
 */
export function foldClientId(id: string): string {
  const folded = id.replaceAll(/\s/g, '').toLowerCase()
  const digits = folded.replaceAll(UUID_MARKS, '')
  return /^[\da-f]{32}$/.test(digits) ? digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-') : folded
}

/**
 * Returns the algorithm that the request objects of a client must be signed with; undefined if they
 * need no signature.
 */
export const signingOf = ({ requestObjectSigningAlg: alg }: ParClient): string | undefined =>
  alg === 'none' ? undefined : alg
