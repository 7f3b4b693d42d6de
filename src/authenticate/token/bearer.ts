import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { Refusal } from '../../errors.ts'
import { type Finding, type Identity, sizeOf, type TokenRules } from './access-token.ts'
import { createNames } from '../../limit/caller.ts'
import { createChallenges } from './challenge.ts'
import { type Bound, createConfirm, type Scheme } from '../proof/confirm.ts'
import type { Proofs } from '../proof/dpop.ts'
import type { Introspect } from './introspection.ts'
import type { Keys } from './jwks.ts'
import { parseJws, parseObject } from './jws.ts'
import { createJwtVerifier, type Verdict, type VerifyJwt } from './jwt.ts'
import type { Sender } from '../proof/sender.ts'

export type { Identity } from './access-token.ts'
export type { Bound } from '../proof/confirm.ts'

/** Whose tokens are taken, and what they must say. */
export interface TrustedIssuer extends Omit<TokenRules, 'audience'> {
  readonly audience: string | readonly string[]
  /** The signature algorithms taken, such as PS256. */
  readonly algorithms: readonly string[]
  /** For `WWW-Authenticate`; of several issuers, the first one's is told. */
  readonly realm: string
  /** For JWTs, which are told by their `iss`. */
  readonly keys: Keys
  /** For opaque tokens, which tell nothing: of several issuers one may have it. */
  readonly introspect?: Introspect | undefined
}

export interface BearerOptions {
  /** Verifies DPoP proofs; unless given, the DPoP scheme is unknown and tokens bound to a key are refused. */
  readonly proofs?: Proofs | undefined
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/**
 * Tells from every `Authorization` value of a request whose it is; `sender` is asked for tokens that are not mere bearer
 * tokens, which without it are refused. A promise only where something must be fetched or remembered first; it never rejects.
 */
export type Authenticate = (
  authorization: readonly string[],
  sender?: () => Sender,
) => Identity | Bound | Refusal | Promise<Identity | Bound | Refusal>

/** `credentials` of RFC 9110 section 11.4, as far as to tell the scheme. */
const CREDENTIALS = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?: +(.+))?$/
/** RFC 6750 section 2.1. */
const B64TOKEN = /^[A-Za-z0-9._~+/-]+=*$/
const MAX_TOKEN = 16 * 1024
const CACHED_TOKENS = 10_000
const CACHED_BYTES = 4 * 1024 * 1024

/**
 * Authenticates callers by access tokens, JWT (RFC 9068) or opaque (RFC 7662), sent as bearer tokens (RFC 6750) or with a
 * proof of possession (RFC 9449, RFC 8705). A refusal is a `Refusal` with its challenge: 401, 400 where the
 * credentials cannot be read in one way, 503 where what is needed to decide is out of reach.
 */
export function createBearer(
  issuers: TrustedIssuer | readonly TrustedIssuer[],
  { proofs, now = Date.now }: BearerOptions = {},
): Authenticate {
  const trusted = 'issuer' in issuers ? [issuers] : issuers
  const verifiers = new Map<unknown, VerifyJwt>(
    trusted.map(({ audience, ...rest }) => [
      rest.issuer,
      createJwtVerifier({ ...rest, audience: typeof audience === 'string' ? [audience] : audience, now }),
    ]),
  )
  const asked = trusted.find(({ introspect }) => introspect !== undefined)
  const nameOf = createNames(trusted.map(({ issuer }) => issuer))
  const challenges = createChallenges(trusted[0]!.realm, proofs?.algorithms)
  const confirm = createConfirm(challenges, proofs)
  const verdicts = new LRUCache<string, Verdict>({
    max: CACHED_TOKENS,
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ identity }) => sizeOf(identity),
  })

  return function authenticate(authorization, sender) {
    if (authorization.length === 0) return challenges.noCredentials()
    if (authorization.length > 1) return challenges.bearer.invalidRequest('Send one Authorization header.')
    const credentials = CREDENTIALS.exec(authorization[0]!)
    if (credentials === null) {
      return challenges.bearer.invalidRequest('The Authorization header is malformed.')
    }
    const scheme = credentials[1]!.toLowerCase()
    if (scheme !== 'bearer' && (scheme !== 'dpop' || proofs === undefined)) return challenges.noCredentials()
    const token = credentials[2]
    if (token === undefined || !B64TOKEN.test(token)) {
      return challenges[scheme].invalidRequest('The Authorization header is malformed.')
    }
    if (token.length > MAX_TOKEN) return challenges[scheme].invalidToken('The access token is too long.')

    // Of the whole token: a digest of less would hand one caller another's identity.
    const digest = hash('sha256', token, 'base64url')
    const finding = find(token, digest)
    if (!(finding instanceof Promise)) return settle(finding, scheme, digest, sender)
    return finding.then((found) => settle(found, scheme, digest, sender))
  }

  function find(token: string, digest: string): Finding | Promise<Finding> {
    const known = verdicts.get(digest)
    if (known !== undefined) {
      const { identity, key, keys } = known
      if (identity.expiresAt > now() && keys.current()?.holds(key) === true) return identity
      verdicts.delete(digest)
    }
    const jws = parseJws(token)
    if (jws === undefined) return looksLikeJwt(token) ? MALFORMED : look(token, digest)
    const claims = parseObject(jws.payload)
    if (claims === undefined) return MALFORMED
    // Read unverified, to choose by; the verifier compares it again.
    const verify = verifiers.get(claims['iss'])
    if (verify === undefined) return 'The access token is not from an issuer that is trusted here.'
    const verdict = verify(jws, claims)
    const issuer = claims['iss'] as string
    return verdict instanceof Promise
      ? verdict.then((judged) => remember(digest, judged, issuer))
      : remember(digest, verdict, issuer)
  }

  function look(token: string, digest: string): Finding | Promise<Finding> {
    if (asked?.introspect === undefined) return MALFORMED
    const { issuer, introspect } = asked
    const named = (finding: Finding): Finding =>
      typeof finding === 'string' || finding instanceof Refusal ? finding : name(finding, issuer)
    const finding = introspect(token, digest)
    return finding instanceof Promise ? finding.then(named) : named(finding)
  }

  function remember(digest: string, verdict: Verdict | string | Refusal, issuer: string): Finding {
    if (typeof verdict === 'string' || verdict instanceof Refusal) return verdict
    const identity = name(verdict.identity, issuer)
    verdicts.set(digest, { ...verdict, identity })
    return identity
  }

  function name(identity: Identity, issuer: string): Identity {
    if (trusted.length === 1) return identity
    const { client, user } = identity
    return {
      ...identity,
      client: nameOf(client, issuer),
      ...(user !== undefined && { user: nameOf(user, issuer) }),
    }
  }

  function settle(
    finding: Finding,
    scheme: Scheme,
    digest: string,
    sender: (() => Sender) | undefined,
  ): Identity | Bound | Refusal {
    if (typeof finding === 'string') return challenges[scheme].invalidToken(finding)
    if (finding instanceof Refusal) return finding
    if (scheme === 'bearer' && finding.confirmation === undefined) return finding
    return confirm(finding, scheme, digest, sender?.())
  }
}

/** A JSON object and two dots, or three: in a spelling that is refused here, others might still read it. Of an encrypted token (RFC 7516), which is opaque here, it is four. */
const looksLikeJwt = (token: string): boolean => /^eyJ[^.]*(?:\.[^.]*){2,3}$/.test(token)

const MALFORMED = 'The access token is malformed.'
