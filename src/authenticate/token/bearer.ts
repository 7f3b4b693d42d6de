import { LRUCache } from 'lru-cache'
import type { Refusal } from '../../errors.ts'
import { type SenderConstrainedToken, createConfirm } from '../proof/confirmation.ts'
import type { Proofs, Sender } from '../proof/dpop.ts'
import { createChallenges, type CredentialsError, invalidToken, type Scheme } from './challenge.ts'
import {
  createQualifier,
  type Identity,
  type TrustedIssuer,
  type VerifiedToken,
  verifyJwt,
} from './claims.ts'
import { parseJws, parseObject, unsliced } from './jws.ts'

/**
 * Identifies the caller by every `Authorization` value of a request; `sender` is called for tokens that are bound to a key,
 * which are refused without it. A promise only where something must be fetched first; it never rejects.
 */
export type Authenticate = (
  authorization: readonly string[],
  sender?: () => Sender,
) => Identity | SenderConstrainedToken | Refusal | Promise<Identity | SenderConstrainedToken | Refusal>

type Found = Identity | CredentialsError | Promise<Identity | CredentialsError>

/** RFC 6750 section 2.1 and RFC 9449 section 7.1. */
const SCHEME = /^(bearer|dpop)(?: +|$)/i
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/
const MAX_TOKEN = 16 * 1024
const CACHED_TOKENS = 10_000
const CACHED_BYTES = 16 * 1024 * 1024
/** What a token is cached under: of a JWT the end of the signature, as to hash all of it takes longer. Opaque ones may end alike. */
const keyOf = (token: string): string => (token.startsWith('eyJ') ? token.slice(-43) : token)
/** A token that came once sets a bit. All are cleared after so many tokens, a few more than are cached; up to then, few share a bit. */
const DOORKEEPER_TOKENS = 16_384
const DOORKEEPER_BITS = 20

const MALFORMED: CredentialsError = {
  error: 'invalid_request',
  description: 'Send one Authorization header, with one access token.',
}

/**
 * Authenticates callers by access tokens, JWT (RFC 9068) or opaque (RFC 7662), sent as bearer tokens (RFC 6750) or with a
 * proof of possession (RFC 9449, RFC 8705). A refusal carries its challenge: 401, 400 where the credentials are malformed or
 * ambiguous, 503 where what is needed to decide is not available. Without `proofs`, the DPoP scheme is unknown and tokens bound
 * to a key are refused.
 */
export function createBearer(trusted: readonly TrustedIssuer[], proofs?: Proofs): Authenticate {
  const issuers = new Map<unknown, TrustedIssuer>(trusted.map((one) => [one.issuer, one]))
  const introspecting = trusted.find(({ introspect }) => introspect !== undefined)
  const qualify = createQualifier(trusted.map(({ issuer }) => issuer))
  const challenges = createChallenges(trusted[0]!.realm, proofs?.algorithms)
  const confirm = createConfirm(challenges, proofs)
  const verified = new LRUCache<string, VerifiedToken & { readonly token: string }>({
    max: CACHED_TOKENS,
    maxSize: CACHED_BYTES,
    // About the bytes that each takes.
    sizeCalculation: ({ token, identity: { client, user = '', scope = '' } }) =>
      384 + token.length + 2 * (client.length + user.length + scope.length),
  })

  function find(token: string): Found {
    const key = keyOf(token)
    const known = verified.get(key)
    // By the whole token: by its end alone, one caller would get another's identity.
    if (known?.token === token) {
      if (known.until > Date.now() && known.keys?.current() === known.set) return known.identity
      verified.delete(key)
    }
    if (!TOKEN.test(token)) return MALFORMED
    if (token.length > MAX_TOKEN) return invalidToken('The access token is too long.')
    const jws = parseJws(token)
    if (jws === undefined && introspecting !== undefined && !looksLikeJwt(token)) {
      return remember(token, introspecting.introspect!(token), introspecting.issuer)
    }
    const claims = parseObject(jws?.payload)
    if (jws === undefined || claims === undefined) return invalidToken('The access token is malformed.')
    // Not verified yet: it selects the verifier, which compares it again.
    const issuer = issuers.get(claims['iss'])
    if (issuer === undefined) {
      return invalidToken('The access token is not from an issuer that is trusted here.')
    }
    return remember(token, verifyJwt(issuer, jws, claims), issuer.issuer, jws.signature)
  }

  const doorkeeper = new Uint32Array(2 ** DOORKEEPER_BITS / 32)
  let marked = 0

  /** Callers that fetch a token for each call send none twice; cached, each would become old garbage and displace another. */
  function seenBefore(signature: Buffer): boolean {
    const bit = signature.readUInt32LE() >>> (32 - DOORKEEPER_BITS)
    const word = bit >>> 5
    const mask = 1 << (bit & 31)
    if ((doorkeeper[word]! & mask) !== 0) return true
    if (marked++ === DOORKEEPER_TOKENS) {
      doorkeeper.fill(0)
      marked = 1
    }
    doorkeeper[word]! |= mask
    return false
  }

  function remember(
    token: string,
    result: ReturnType<typeof verifyJwt>,
    issuer: string,
    signature?: Buffer,
  ): Found {
    if (result instanceof Promise)
      return result.then((settled) => remember(token, settled, issuer, signature))
    if ('error' in result) {
      const { client } = result
      return client === undefined ? result : { ...result, client: qualify(client, issuer) }
    }
    let { identity } = result
    if (trusted.length > 1) {
      const { client, user } = identity
      identity = { ...identity, client: qualify(client, issuer), user: user && qualify(user, issuer) }
    }
    // To introspect again would cost far more than a place in the cache.
    if (signature === undefined || seenBefore(signature)) {
      // Without the spaces of the header field, as many as the caller sent.
      const copy = unsliced(token)
      verified.set(keyOf(copy), { ...result, identity, token: copy })
    }
    return identity
  }

  function settle(
    finding: Identity | CredentialsError,
    scheme: Scheme,
    token: string,
    sender?: () => Sender,
  ) {
    if ('error' in finding) return challenges.refuse(finding, scheme)
    if (scheme === 'bearer' && finding.confirmation === undefined) return finding
    return confirm(finding, scheme, token, sender?.())
  }

  return function authenticate(authorization, sender) {
    if (authorization.length > 1) return challenges.refuse(MALFORMED, 'bearer')
    const credentials = authorization[0] ?? ''
    const begin = SCHEME.exec(credentials)
    const scheme = begin?.[1]!.toLowerCase() as Scheme | undefined
    if (scheme === undefined || (scheme === 'dpop' && proofs === undefined))
      return challenges.noCredentials(credentials !== '')
    const token = credentials.slice(begin![0].length)
    const finding = find(token)
    if (!(finding instanceof Promise)) return settle(finding, scheme, token, sender)
    return finding.then((found) => settle(found, scheme, token, sender))
  }
}

/** A JSON object and two dots, or three, since others might accept such a spelling. An encrypted token (RFC 7516), which is opaque here, has four. */
const looksLikeJwt = (token: string): boolean => /^eyJ[^.]*(?:\.[^.]*){2,3}$/.test(token)
