import { setImmediate as immediate } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { type CredentialsError, invalidToken } from '../jose/credentials-error.ts'
import { sha256 } from '../jose/sha256.ts'
import pLimit from 'p-limit'
import { Health, type HealthOptions } from '../../health.ts'
import { atMost } from '../../runtime/at-most.ts'
import { type JsonObject, parseObject, withoutNulls } from '../../runtime/json.ts'
import { toError } from '../../runtime/to-error.ts'
import type { TokenRules, Verification } from './claims.ts'
import { mismatch } from '../jose/cause.ts'
import { hasAudience, notAccess, readClaims } from './claims.ts'
import { UNCHECKABLE, unverifiable } from './claims.ts'
import { describeStatus, FetchError, fetchFailure, readBytes } from '../jose/fetch-json.ts'
import { saysAccess } from './token-kind.ts'

export interface IntrospectionOptions extends TokenRules {
  readonly url: string
  /**
   * How the gateway authenticates: `basic` and `post` with both credentials (RFC 6749 section
   * 2.3.1), `bearer` with `clientSecret` as an access token (RFC 7662 section 2.1). Default: `basic`.
   */
  readonly authentication?: 'basic' | 'post' | 'bearer'
  readonly clientId?: string | undefined
  readonly clientSecret: string
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'> & {
    /** Called for each lookup; `failed` if there is no answer, or too many lookups wait. */
    readonly onResult?: (result: IntrospectionResult) => void
  }
  /** Timeout of a lookup, waiting included. */
  readonly timeoutMs?: number
  /** Time between lookups of an accepted token. A revoked token may be accepted for that long. */
  readonly maxAgeMs?: number
}

export type IntrospectionResult = 'active' | 'inactive' | 'failed'

/**
 * Verifies an opaque token. Returns a promise, which never rejects, only if the issuer must be
 * asked.
 */
export type Introspect = (token: string) => CredentialsError | Promise<Verification>

/**
 * The cache of refusals: their maximum number, and how long one is kept, by the clock of the
 * tokens' times.
 */
const REFUSALS = { ...atMost(10_000), ttl: 5000, ttlResolution: 0, perf: Date }
const notActive = (cause: string) => invalidToken('The access token is not active.', cause)
const NOT_ACTIVE = notActive('accepted active: true; of the introspection response: false')
const NOT_KNOWN = notActive('the introspection endpoint does not accept such tokens: it answered 400')
const NO_KIND = notAccess(
  'the introspection response has no aud, and no token_type or token_use of an access token',
)
const NO_JKT = { ...UNCHECKABLE, cause: 'token_type: DPoP; the introspection response has no cnf with jkt' }
/** RFC 6749 section 7.1, RFC 9449 section 5, or a value that some servers use instead. */
const ACCESS_TOKEN = /^(?:bearer|dpop|access_token)$/i

const MAX_BYTES = 64 * 1024
/** Maximum concurrent requests, and lookups that wait for one to end. */
const MAX_CONCURRENT = 32
const MAX_WAITING = 1000
const MAX_FAILURES = 3
/** Errors of the token, not the request (RFC 7009 section 2.2.1, RFC 6750 section 3.1). */
const TOKEN_ERRORS = new Set<unknown>(['unsupported_token_type', 'invalid_token'])

/** Returns the header fields of a request, and the credentials in its form. */
function credentialsOf({ authentication = 'basic', clientId = '', clientSecret }: IntrospectionOptions) {
  const headers = { accept: 'application/json', 'content-type': 'application/x-www-form-urlencoded' }
  if (authentication === 'post')
    return { headers, fields: { client_id: clientId, client_secret: clientSecret } }
  // RFC 6749 section 2.3.1: both halves form-encoded.
  const pair = new URLSearchParams([[clientId, clientSecret]]).toString().replace('=', ':')
  const authorization = authentication === 'bearer' ? `Bearer ${clientSecret}` : `Basic ${btoa(pair)}`
  return { headers: { ...headers, authorization }, fields: {} }
}

/**
 * Creates the lookup of opaque tokens (RFC 7662). Concurrent lookups of a token share one request.
 * Refusals are cached. An outage gives a 503.
 */
export function createIntrospection(options: IntrospectionOptions) {
  const { url, events, timeoutMs = 3000, maxAgeMs = 30_000 } = options
  // RFC 7662 section 2.2: `aud` is optional. The issuer has decided that the gateway, which it
  // authenticates, may accept the token (section 4).
  const rules = { ...options, audienceOptional: true }
  const { headers, fields } = credentialsOf(options)
  // For the log and the metrics: it pauses no lookups, since callers with tokens on which a healthy
  // endpoint fails could lock out others.
  const health = new Health({ failures: MAX_FAILURES, backoffMs: 0, ...events })
  const limit = pLimit(MAX_CONCURRENT)
  const inFlight = new Map<string, Promise<Verification>>()
  const refused = new LRUCache<string, CredentialsError>(REFUSALS)

  /**
   * Returns the answer; undefined if the endpoint does not accept such tokens. Follows no
   * redirects.
   */
  async function post(token: string, signal: AbortSignal): Promise<JsonObject | undefined> {
    const body = new URLSearchParams({ token, token_type_hint: 'access_token', ...fields }).toString()
    const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
    const answer = parseObject(await readBytes(response.body, MAX_BYTES))
    const { status } = response
    if (status === 200 && typeof answer?.['active'] === 'boolean') return answer
    if (status === 400 && TOKEN_ERRORS.has(answer?.['error'])) return undefined
    if (status === 200) throw new FetchError('answered without an introspection response')
    if (status !== 401 && status !== 403) throw new FetchError(describeStatus(response))
    throw new FetchError(`answered ${status}: it refused the gateway's clientId and clientSecret`)
  }

  /** Asks the endpoint, within the timeout and the bounds; rejects without an answer. */
  async function ask(token: string): Promise<JsonObject | undefined> {
    if (limit.pendingCount >= MAX_WAITING) throw new Error(`${MAX_WAITING} lookups already wait`)
    const signal = AbortSignal.timeout(timeoutMs)
    return await limit(async () => {
      // Lets due timers fire first: a lookup past its timeout must not be sent.
      await immediate()
      signal.throwIfAborted()
      return await post(token, signal)
    }).catch((cause: unknown) => {
      throw fetchFailure(url, cause)
    })
  }

  async function lookUp(token: string, key: string): Promise<Verification> {
    const askedAt = Date.now()
    let answer: JsonObject | undefined
    try {
      answer = await ask(token)
    } catch (cause) {
      events.onResult?.('failed')
      health.failed(toError(cause))
      return unverifiable(cause)
    }
    health.succeeded()
    const isActive = answer?.['active'] === true
    events.onResult?.(isActive ? 'active' : 'inactive')
    const inactive = answer === undefined ? NOT_KNOWN : NOT_ACTIVE
    const result = isActive ? read(withoutNulls(answer!), askedAt) : inactive
    if ('error' in result) refused.set(key, result)
    return result
  }

  function read(answer: JsonObject, askedAt: number): Verification {
    const { token_type: type = 'bearer' } = answer
    // RFC 7662 section 2.2: `iss` and `exp` are optional, and the issuer is known.
    const claims: JsonObject = { iss: options.issuer, exp: Number.MAX_VALUE, ...answer }
    const identity = readClaims('at+jwt', claims, rules)
    if ('error' in identity) return identity
    const { client, confirmation } = identity
    if (typeof type !== 'string' || !ACCESS_TOKEN.test(type))
      return { ...notAccess(mismatch('token_type', type, ['Bearer', 'DPoP'])), client }
    // oidc-provider's response for a refresh token has neither `aud` nor `token_type`.
    if (!hasAudience(claims['aud'], options.audience) && !saysAccess(answer)) return { ...NO_KIND, client }
    if (type.toLowerCase() === 'dpop' && !confirmation?.jkt) return { ...NO_JKT, client }
    return { identity, until: Math.min(askedAt + maxAgeMs, (claims['exp'] as number) * 1000) }
  }

  const introspect: Introspect = (token) => {
    const key = sha256(token)
    const cached = refused.get(key)
    if (cached !== undefined) return cached
    const lookup = inFlight.get(key) ?? lookUp(token, key).finally(() => inFlight.delete(key))
    inFlight.set(key, lookup)
    return lookup
  }
  return Object.assign(introspect, { isUp: () => health.up })
}
