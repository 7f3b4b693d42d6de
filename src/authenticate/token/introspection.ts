import { LRUCache } from 'lru-cache'
import { type Fault, invalidToken, unverifiable } from './challenge.ts'
import { NOT_ACCESS, readClaims, type TokenRules } from './claims.ts'
import { createEndpoint, type EndpointOptions } from './introspection-endpoint.ts'
import type { JsonObject } from './jws.ts'
import type { VerifiedToken } from './jwt.ts'

export interface IntrospectionOptions extends EndpointOptions, Omit<TokenRules, 'type'> {
  /** Longest that a token is accepted without asking again, and so that a revoked one may live on. */
  readonly maxAgeMs?: number
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** Verifies an opaque token; `digest` is the SHA-256 of the token. A promise only where the issuer must be asked; it never rejects. */
export type Introspect = (token: string, digest: string) => Fault | Promise<VerifiedToken | Fault>

/** How long a refused token is refused without asking again. */
const REFUSED_MS = 5000
const MAX_REFUSED = 10_000
const NOT_ACTIVE = invalidToken('The access token is not active.')

/**
 * Identifies opaque tokens by their issuer's introspection endpoint (RFC 7662). Concurrent lookups of one token are one;
 * refusals are remembered for a moment by the token's digest. An outage is a 503.
 */
export function createIntrospection(options: IntrospectionOptions): Introspect {
  const { maxAgeMs = 30_000, now = Date.now } = options
  const rules = { ...options, type: 'any' as const }
  const ask = createEndpoint(options)
  const inFlight = new Map<string, Promise<VerifiedToken | Fault>>()
  const refused = new LRUCache<string, { readonly fault: Fault; readonly until: number }>({
    max: MAX_REFUSED,
  })

  async function lookUp(token: string, digest: string): Promise<VerifiedToken | Fault> {
    const askedAt = now()
    let answer: JsonObject | undefined
    try {
      answer = await ask(token)
    } catch (cause) {
      return unverifiable(cause)
    }
    const result = answer?.['active'] === true ? read(answer, askedAt) : NOT_ACTIVE
    if ('error' in result) refused.set(digest, { fault: result, until: askedAt + REFUSED_MS })
    return result
  }

  function read(answer: JsonObject, askedAt: number): VerifiedToken | Fault {
    const { token_type: type } = answer
    if (type !== undefined && !(typeof type === 'string' && ACCESS_TOKEN.test(type))) return NOT_ACCESS
    // RFC 7662 section 2.2: both are optional, and the issuer is known.
    const claims: JsonObject = { iss: options.issuer, exp: Number.MAX_VALUE, ...answer }
    const identity = readClaims(HEADER, claims, rules, now())
    if ('error' in identity) return identity
    if (type?.toLowerCase() === 'dpop' && !identity.confirmation?.jkt) {
      return invalidToken('The access token is bound to its client in a way that cannot be checked here.')
    }
    return { identity, until: Math.min(askedAt + maxAgeMs, (claims['exp'] as number) * 1000) }
  }

  return function introspect(token, digest) {
    const known = refused.get(digest)
    if (known !== undefined && known.until > now()) return known.fault
    let lookup = inFlight.get(digest)
    if (lookup === undefined) {
      lookup = lookUp(token, digest).finally(() => inFlight.delete(digest))
      inFlight.set(digest, lookup)
    }
    return lookup
  }
}

/** The issuer says itself that it is an access token. */
const HEADER = { typ: 'at+jwt' }
/** RFC 6749 section 7.1, RFC 9449 section 5, and what some write in their place. */
const ACCESS_TOKEN = /^(?:bearer|dpop|access_token)$/i
