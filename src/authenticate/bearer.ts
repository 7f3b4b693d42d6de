import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { type GatewayError, serviceUnavailable } from '../errors.ts'
import { type Identity, readClaims, refuseHeader, type TokenRules } from './access-token.ts'
import { createChallenges } from './challenge.ts'
import type { KeySource } from './jwks.ts'
import { type Jws, parseJws, parseObject, verifyJws } from './jws.ts'
import type { KeySet, VerificationKey } from './key-set.ts'

export type { Identity } from './access-token.ts'

export interface BearerOptions extends Omit<TokenRules, 'audience'> {
  readonly audience: string | readonly string[]
  /** The signature algorithms taken, such as PS256. */
  readonly algorithms: readonly string[]
  /** For `WWW-Authenticate`. */
  readonly realm: string
  readonly keys: KeySource
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** Tells from every `Authorization` value of a request whose it is. A promise only where keys must be fetched first; it never rejects. */
export type Authenticate = (
  authorization: readonly string[],
) => Identity | GatewayError | Promise<Identity | GatewayError>

/** `credentials` of RFC 9110 section 11.4, as far as to tell the scheme. */
const CREDENTIALS = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?: +(.+))?$/
/** RFC 6750 section 2.1. */
const B64TOKEN = /^[A-Za-z0-9._~+/-]+=*$/
const MAX_TOKEN = 16 * 1024
const CACHED_TOKENS = 10_000
const CACHED_BYTES = 4 * 1024 * 1024

/** A verdict that holds until `expiresAt` of its identity, as long as the issuer publishes the key. */
interface Verdict {
  readonly identity: Identity
  readonly key: VerificationKey
}

/**
 * Authenticates callers by JWT access tokens (RFC 9068) sent as bearer tokens (RFC 6750). A refusal is a `GatewayError` with
 * its challenge: 401, 400 where the credentials cannot be read in one way, 503 where no keys could be had so far.
 */
export function createBearer(options: BearerOptions): Authenticate {
  const { keys, realm, type, now = Date.now } = options
  const algorithms = new Set(options.algorithms)
  const audience = typeof options.audience === 'string' ? [options.audience] : options.audience
  const rules: TokenRules = { ...options, audience }
  const { noCredentials, invalidRequest, invalidToken } = createChallenges(realm)
  const verdicts = new LRUCache<string, Verdict>({
    max: CACHED_TOKENS,
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ identity }) =>
      256 + 2 * (identity.client.length + (identity.user?.length ?? 0) + (identity.scope?.length ?? 0)),
  })

  return function authenticate(authorization) {
    if (authorization.length === 0) return noCredentials()
    if (authorization.length > 1) return invalidRequest('Send one Authorization header.')
    const credentials = CREDENTIALS.exec(authorization[0]!)
    if (credentials === null) return invalidRequest('The Authorization header is malformed.')
    if (credentials[1]!.toLowerCase() !== 'bearer') return noCredentials()
    const token = credentials[2]
    if (token === undefined || !B64TOKEN.test(token)) {
      return invalidRequest('The Authorization header is malformed.')
    }
    if (token.length > MAX_TOKEN) return invalidToken('The access token is too long.')

    // Of the whole token: a digest of less would hand one caller another's identity.
    const digest = hash('sha256', token, 'base64url')
    const verdict = verdicts.get(digest)
    if (verdict !== undefined) {
      if (verdict.identity.expiresAt > now() && keys.current()?.holds(verdict.key) === true) {
        return verdict.identity
      }
      verdicts.delete(digest)
    }
    return verify(token, digest)
  }

  function verify(token: string, digest: string): ReturnType<Authenticate> {
    const jws = parseJws(token)
    if (jws === undefined) return invalidToken('The access token is malformed.')
    const { alg } = jws.header
    if (typeof alg !== 'string' || !algorithms.has(alg)) {
      return invalidToken('The access token is signed with an algorithm that is not accepted.')
    }
    const refusal = refuseHeader(jws.header, type)
    if (refusal !== undefined) return invalidToken(refusal)

    const known = keys.current()
    const key = known && keyOf(known, jws, alg)
    if (key === undefined) {
      // The issuer may have a new key, even under an old kid.
      const fresh = keys.refresh()
      if (fresh !== undefined)
        return fresh.then((set) => judge(set, set && keyOf(set, jws, alg), jws, digest))
    }
    return judge(known, key, jws, digest)
  }

  function judge(
    set: KeySet | undefined,
    key: VerificationKey | undefined,
    jws: Jws,
    digest: string,
  ): Identity | GatewayError {
    if (set === undefined) return serviceUnavailable('Access tokens cannot be verified for now.', NO_KEYS)
    if (key === undefined) return invalidToken('The signature of the access token is not valid.')
    const claims = parseObject(jws.payload)
    if (claims === undefined) return invalidToken('The access token is malformed.')
    const identity = readClaims(jws.header, claims, rules, now())
    if (typeof identity === 'string') return invalidToken(identity)
    verdicts.set(digest, { identity, key })
    return identity
  }
}

const NO_KEYS = 'the keys of the issuer could not be read so far'

/** The key in `set` that verifies the signature. Keys that a token itself carries or points to are never looked at. */
function keyOf(set: KeySet, jws: Jws, algorithm: string): VerificationKey | undefined {
  const kid = jws.header['kid'] as string | undefined
  return set.find(algorithm, kid).find((candidate) => verifyJws(jws, algorithm, candidate.key))
}
