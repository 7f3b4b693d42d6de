import { LRUCache } from 'lru-cache'
import { type Fault, invalidToken, unverifiable } from './challenge.ts'
import { type Identity, readClaims, sizeOf, type TokenRules } from './claims.ts'
import { createEndpoint, type EndpointOptions } from './introspection-endpoint.ts'
import type { JsonObject } from './jws.ts'

export interface IntrospectionOptions extends EndpointOptions, Omit<TokenRules, 'type'> {
  /** Longest that a token is accepted without asking again, and so that a revoked one may live on. */
  readonly maxAgeMs?: number
  /** Most tokens remembered, and most refusals. */
  readonly maxKnown?: number
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** Identifies an opaque token; `digest` is the SHA-256 of the token. A promise only where the issuer must be asked; it never rejects. */
export type Introspect = (token: string, digest: string) => Identity | Fault | Promise<Identity | Fault>

interface Known<T> {
  readonly finding: T
  readonly until: number
}

/** How long a refused token is refused without asking again. */
const REFUSED_MS = 5000
const CACHED_BYTES = 4 * 1024 * 1024
const NOT_ACTIVE = invalidToken('The access token is not active.')

/**
 * Identifies opaque tokens by their issuer's introspection endpoint (RFC 7662). Lookups of one token under way are one;
 * answers are remembered by the token's digest, never longer than the token's `exp`. An outage is a 503.
 */
export function createIntrospection(options: IntrospectionOptions): Introspect {
  const { maxAgeMs = 30_000, maxKnown = 10_000, now = Date.now } = options
  const rules = { ...options, type: 'any' as const }
  const ask = createEndpoint(options)
  const underWay = new Map<string, Promise<Identity | Fault>>()
  const accepted = new LRUCache<string, Known<Identity>>({
    max: maxKnown,
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ finding }) => sizeOf(finding),
  })
  // Apart, so that made-up tokens evict no good ones.
  const refused = new LRUCache<string, Known<Fault>>({ max: maxKnown })

  async function lookUp(token: string, digest: string): Promise<Identity | Fault> {
    const askedAt = now()
    let answer: JsonObject | undefined
    try {
      answer = await ask(token)
    } catch (cause) {
      return unverifiable(cause)
    }
    const finding = answer?.['active'] === true ? read(answer, askedAt) : NOT_ACTIVE
    if ('error' in finding) {
      accepted.delete(digest)
      refused.set(digest, { finding, until: askedAt + REFUSED_MS })
    } else accepted.set(digest, { finding, until: Math.min(askedAt + maxAgeMs, finding.expiresAt) })
    return finding
  }

  function read(answer: JsonObject, askedAt: number): Identity | Fault {
    const { token_type: type } = answer
    if (type !== undefined && !(typeof type === 'string' && ACCESS_TOKEN.test(type))) {
      return invalidToken('The token is not an access token.')
    }
    // RFC 7662 section 2.2: both are optional, and the issuer is known.
    const identity = readClaims(HEADER, { iss: options.issuer, exp: NEVER, ...answer }, rules, now())
    if ('error' in identity) return identity
    if (type?.toLowerCase() === 'dpop' && !identity.confirmation?.jkt) {
      return invalidToken('The access token is bound to its client in a way that cannot be checked here.')
    }
    // Without `exp` the answer, not the token, expires.
    return 'exp' in answer ? identity : { ...identity, expiresAt: askedAt + maxAgeMs }
  }

  return function introspect(token, digest) {
    const known = accepted.get(digest) ?? refused.get(digest)
    if (known !== undefined && known.until > now()) return known.finding
    let lookup = underWay.get(digest)
    if (lookup === undefined) {
      lookup = lookUp(token, digest).finally(() => underWay.delete(digest))
      underWay.set(digest, lookup)
    }
    return lookup
  }
}

/** Seconds, later than any `exp`. */
const NEVER = Number.MAX_SAFE_INTEGER / 1000
/** The issuer says itself that it is an access token. */
const HEADER = { typ: 'at+jwt' }
/** RFC 6749 section 7.1, RFC 9449 section 5, and what some write in their place. */
const ACCESS_TOKEN = /^(?:bearer|dpop|access_token)$/i
