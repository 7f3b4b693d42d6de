import { LRUCache } from 'lru-cache'
import type { Refusal } from '../../errors.ts'
import { parseObject, withoutNulls } from '../../runtime/json.ts'
import { malformedCause, mismatch } from '../jose/cause.ts'
import { type CredentialsError, invalidToken } from '../jose/credentials-error.ts'
import { parseJws } from '../jose/jws.ts'
import type { Sender, VerifyProof } from '../proof/dpop.ts'
import { type BoundToken, createChallenges, createConfirm, type Scheme } from './challenge.ts'
import { type Identity, type JwtRules, type VerifiedToken, type Verifying, verifyJwt } from './claims.ts'
import type { Introspect } from './introspection.ts'

export interface TrustedIssuer extends JwtRules {
  /** Realm for `WWW-Authenticate`, which has that of the first issuer. */
  readonly realm: string
  /** Lookup of opaque tokens, which only one issuer may have. */
  readonly introspect?: Introspect | undefined
  /** URL of the API, whose metadata challenges name; at most one issuer has it. */
  readonly resource?: string | undefined
}

/**
 * Identifies the caller by all `Authorization` values; `sender` is for bound tokens. A promise, if
 * keys or introspection are awaited, never rejects.
 */
export type Authenticate = (
  authorization: readonly string[],
  sender?: () => Sender,
) => Authenticated | Promise<Authenticated>

export type Authenticated = Identity | BoundToken | Refusal

type Found = Identity | CredentialsError
type Finding = Found | Promise<Found>

/** RFC 6750 section 2.1 and RFC 9449 section 7.1. */
const SCHEME = /^(bearer|dpop)(?: +|$)/i
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/
const CACHED_TOKENS = 10_000
const CACHED_BYTES = 16 * 1024 * 1024
/** Tokens after which those that were seen once are forgotten: somewhat more than are cached. */
const DOORKEEPER_TOKENS = 16_384

const malformed = (cause: string): CredentialsError => ({
  error: 'invalid_request',
  description: 'Send one Authorization header, with one access token.',
  cause,
})
const ACCEPTED = 'accepted: a token of letters, digits and ._~+/-, then ='
const OTHER_TOKEN = malformed(`${ACCEPTED}; the header has another one`)
const NO_TOKEN = malformed(`${ACCEPTED}; the header has none after the scheme`)

/**
 * Creates the authentication by access tokens, JWT (RFC 9068) or opaque (RFC 7662), sent as bearer
 * tokens (RFC 6750) or with a proof of possession (RFC 9449, RFC 8705). Returns a 401, a 400 for
 * malformed or ambiguous credentials, or a 503 if keys or introspection are unavailable. Without
 * `verifyProof`, it refuses the DPoP scheme and tokens that are bound to a key.
 */
export function createBearer(trusted: readonly TrustedIssuer[], verifyProof?: VerifyProof): Authenticate {
  const issuers = new Map<unknown, TrustedIssuer>()
  for (const one of trusted) for (const name of one.names ?? [one.issuer]) issuers.set(name, one)
  const introspecting = trusted.find(({ introspect }) => introspect !== undefined)
  const qualify = createQualifier(trusted.map(({ issuer }) => issuer))
  const resource = trusted.find((issuer) => issuer.resource !== undefined)?.resource
  const challenges = createChallenges(trusted[0]!.realm, verifyProof !== undefined, resource)
  const confirm = createConfirm(challenges, verifyProof)
  const isRepeated = createDoorkeeper()
  const verified = new LRUCache<string, VerifiedToken & { readonly token: string }>({
    max: CACHED_TOKENS,
    maxSize: CACHED_BYTES,
    // About the bytes that an entry takes.
    sizeCalculation: ({ token, identity }) => 384 + token.length + 2 * JSON.stringify(identity).length,
  })

  function find(token: string): Finding {
    const key = cacheKeyOf(token)
    const cached = verified.get(key)
    // Other tokens may end alike: comparing only the key could return another caller's identity.
    if (cached?.token === token) {
      if (cached.until > Date.now() && cached.keys?.current() === cached.set) return cached.identity
      verified.delete(key)
    }
    if (!TOKEN.test(token)) return token === '' ? NO_TOKEN : OTHER_TOKEN
    const jws = parseJws(token)
    if (jws === undefined && introspecting !== undefined && !looksLikeJwt(token))
      return remember(token, introspecting.introspect!(token), introspecting.issuer)
    const payload = parseObject(jws?.payload)
    if (!jws || !payload) return invalidToken('The access token is malformed.', malformedCause(token))
    const claims = withoutNulls(payload)
    // Not verified yet: `iss` selects the verifier, which compares it again.
    const issuer = issuers.get(claims['iss'])
    if (issuer === undefined)
      return invalidToken(
        'The issuer is not trusted here.',
        mismatch('iss', claims['iss'], [...issuers.keys()]),
      )
    return remember(token, verifyJwt(issuer, jws, claims), issuer.issuer, jws.signature)
  }

  function remember(token: string, result: Verifying, issuer: string, signature?: Buffer): Finding {
    if (result instanceof Promise)
      return result.then((settled) => remember(token, settled, issuer, signature))
    if ('error' in result) {
      const { client } = result
      return client === undefined ? result : { ...result, client: qualify(client, issuer) }
    }
    const identity = trusted.length === 1 ? result.identity : qualified(result.identity, issuer)
    // An opaque token is cached at once: introspecting it again would cost far more than its cache
    // entry.
    if (signature === undefined || isRepeated(signature)) {
      // A slice would keep the whole header field in memory, whose spaces the caller chooses.
      const copy = Buffer.from(token).toString('latin1')
      const { until, keys, set } = result
      // Copies by `...result` have several shapes, for which V8 looks up each property.
      verified.set(cacheKeyOf(copy), { identity, until, keys, set, token: copy })
    }
    return identity
  }

  function qualified(identity: Identity, issuer: string): Identity {
    const { client, user } = identity
    return { ...identity, client: qualify(client, issuer), user: user && qualify(user, issuer) }
  }

  function settle(found: Found, scheme: Scheme, token: string, sender?: () => Sender) {
    if ('error' in found)
      return challenges.refuse(found, scheme, scheme === 'bearer' ? found.needed : undefined)
    if (scheme === 'bearer' && found.confirmation === undefined) return found
    return confirm(found, scheme, token, sender?.())
  }

  return function authenticate(authorization, sender) {
    if (authorization.length > 1)
      return challenges.refuse(malformed(`headers: ${authorization.length}`), 'bearer')
    const credentials = authorization[0] ?? ''
    const begin = SCHEME.exec(credentials)
    const scheme = begin?.[1]!.toLowerCase() as Scheme | undefined
    if (scheme === undefined || (scheme === 'dpop' && !verifyProof)) return challenges.noCredentials
    const token = credentials.slice(begin![0].length)
    const found = find(token)
    if (!(found instanceof Promise)) return settle(found, scheme, token, sender)
    return found.then((result) => settle(result, scheme, token, sender))
  }
}

/**
 * Returns the cache key: the end of a JWT's signature (a hash: +0.7 us;
 * `npm run bench:micro -- token-key`), or the whole of an opaque token, as two may end alike.
 */
const cacheKeyOf = (token: string): string => (token.startsWith('eyJ') ? token.slice(-43) : token)

/**
 * Returns true for two dots, or three, which other servers might accept. Encrypted tokens (RFC
 * 7516), which are opaque here, have four.
 */
const looksLikeJwt = (token: string): boolean => /^eyJ[^.]*(?:\.[^.]*){2,3}$/.test(token)

/**
 * Creates the function that returns true for a repeated signature. Caching every token: +3 %
 * processor time and 39 MB if each is new (`npm run bench -- --rows new`).
 */
export function createDoorkeeper() {
  const seen = new Set<number>()
  return (signature: Buffer): boolean => {
    const start = signature.readInt32LE()
    if (seen.has(start)) return true
    if (seen.size === DOORKEEPER_TOKENS) seen.clear()
    seen.add(start)
    return false
  }
}

const suffixOf = (issuer: string) => `@${issuer.replaceAll('%', '%25').replaceAll('@', '%40')}`

/**
 * Makes ids of several issuers unique: an id of the first issuer stays, unless it ends in `@` and
 * an issuer; such an id, and any other, becomes `id@issuer`.
 */
export function createQualifier(issuers: readonly string[]) {
  const [first, ...others] = issuers
  const suffixes = issuers.map(suffixOf)
  return (id: string, issuer = first!): string => {
    if (others.length === 0) return id
    const isPlain = issuer === first && !suffixes.some((suffix) => id.endsWith(suffix))
    return isPlain ? id : id + suffixOf(issuer)
  }
}
