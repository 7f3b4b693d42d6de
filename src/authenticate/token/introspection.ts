import { LRUCache } from 'lru-cache'
import { serviceUnavailable } from '../../errors.ts'
import { type Finding, type Identity, readClaims, sizeOf } from './access-token.ts'
import { createEndpoint, type EndpointOptions } from './introspection-endpoint.ts'
import type { JsonObject } from './jws.ts'

export interface IntrospectionOptions extends EndpointOptions {
  /** Compared exactly with an answer's `iss`, where there is one. */
  readonly issuer: string
  /** One of the token's must be one of these. */
  readonly audience: string | readonly string[]
  /** The member of the answer that names the client. */
  readonly clientClaim: string
  /** How far clocks may differ, on `exp`, `nbf` and `iat`. */
  readonly leewayMs: number
  /** Longest that a token is taken without asking again, and so that a revoked one may live on. */
  readonly maxAgeMs?: number
  /** How long a refused token is refused without asking again. */
  readonly refusedMs?: number
  /** Most tokens remembered, and most refusals. */
  readonly maxKnown?: number
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** Asks whose an opaque token is; `digest` is the SHA-256 of the token. A promise only where the issuer must be asked; it never rejects. */
export type Introspect = (token: string, digest: string) => Finding | Promise<Finding>

interface Known<T> {
  readonly finding: T
  readonly until: number
}

const CACHED_BYTES = 4 * 1024 * 1024

/**
 * Identifies opaque tokens by their issuer's introspection endpoint (RFC 7662). Lookups of one token under way are one;
 * what the issuer said is remembered by the token's digest, never longer than the token's `exp`. An outage is a 503.
 */
export function createIntrospection(options: IntrospectionOptions): Introspect {
  const { audience, maxAgeMs = 30_000, refusedMs = 5000, maxKnown = 10_000, now = Date.now } = options
  const rules = {
    ...options,
    audience: typeof audience === 'string' ? [audience] : audience,
    type: 'any' as const,
  }
  const ask = createEndpoint(options)
  const underWay = new Map<string, Promise<Finding>>()
  const accepted = new LRUCache<string, Known<Identity>>({
    max: maxKnown,
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ finding }) => sizeOf(finding),
  })
  // Apart, so that made-up tokens push out no good ones.
  const refused = new LRUCache<string, Known<string>>({ max: maxKnown })

  async function look(token: string, digest: string): Promise<Finding> {
    const askedAt = now()
    let answer: JsonObject | undefined
    try {
      answer = await ask(token)
    } catch (cause) {
      return serviceUnavailable('Access tokens cannot be verified for now.', cause)
    }
    const finding = answer?.['active'] === true ? read(answer, askedAt) : 'The access token is not active.'
    if (typeof finding === 'string') {
      accepted.delete(digest)
      refused.set(digest, { finding, until: askedAt + refusedMs })
    } else accepted.set(digest, { finding, until: Math.min(askedAt + maxAgeMs, finding.expiresAt) })
    return finding
  }

  function read(answer: JsonObject, askedAt: number): Identity | string {
    const { token_type: type } = answer
    if (type !== undefined && !(typeof type === 'string' && ACCESS_TOKEN.test(type))) {
      return 'The token is not an access token.'
    }
    // RFC 7662 section 2.2 leaves both out where it likes; who was asked is known.
    const identity = readClaims(HEADER, { iss: options.issuer, exp: NEVER, ...answer }, rules, now())
    if (typeof identity === 'string') return identity
    if (type?.toLowerCase() === 'dpop' && !identity.confirmation?.jkt) {
      return 'The access token is bound to its client in a way that cannot be checked here.'
    }
    // Until then the answer counts; it is no time by which the token itself is to be judged.
    return 'exp' in answer ? identity : { ...identity, expiresAt: askedAt + maxAgeMs }
  }

  return function introspect(token, digest) {
    for (const cache of [accepted, refused]) {
      const known = cache.get(digest)
      if (known !== undefined && known.until > now()) return known.finding
    }
    let lookup = underWay.get(digest)
    if (lookup === undefined) {
      lookup = look(token, digest).finally(() => underWay.delete(digest))
      underWay.set(digest, lookup)
    }
    return lookup
  }
}

/** Later than any time that a token may say, in seconds. */
const NEVER = Number.MAX_SAFE_INTEGER / 1000
/** What the issuer calls active has been told from other tokens by the issuer. */
const HEADER = { typ: 'at+jwt' }
/** RFC 6749 section 7.1, RFC 9449 section 5, and what some write in their place. */
const ACCESS_TOKEN = /^(?:bearer|dpop|access_token)$/i
