import type { IncomingMessage } from 'node:http'
import { LRUCache } from 'lru-cache'
import { firstOf } from '../../downstream/public-url.ts'
import { canonicalPath } from '../../downstream/target.ts'
import { isObject, type JsonObject, parseObject } from '../../runtime/json.ts'
import { malformedCause, mismatch, shown } from '../jose/cause.ts'
import { type CredentialsError, invalidToken } from '../jose/credentials-error.ts'
import { type Jws, needsExtension, parseJws, verifyJws } from '../jose/jws.ts'
import { privateMember, readKey, type VerificationKey } from '../jose/key-set.ts'
import { sha256 } from '../jose/sha256.ts'
import { headerCause, jwkCause, urlCause } from './proof-cause.ts'

/** The thumbprint of the key that a token is bound to, and the base64url SHA-256 of the token. */
type Binding = Readonly<Record<'jkt' | 'ath', string>>

/** A valid proof that may be a replay; it is charged together with the limits of its call. */
export interface Proof {
  readonly id: string
  /** Time for which a second use is refused, the same for each use: until the proof is too old. */
  readonly windowMs: number
}

/**
 * Verifies the one DPoP proof of a request (RFC 9449 section 4.3), except that it is not a replay.
 * Never rejects.
 */
export type VerifyProof = (binding: Binding, sender: Sender) => Promise<Proof | CredentialsError>

/** The parts of a request that a proof of possession is checked against. */
export interface Sender {
  readonly method: string
  readonly scheme: string
  /** Includes the port, unless it is the scheme's default. */
  readonly host: string
  readonly path: string
  /** True if the path must not be logged. */
  readonly hidesPath?: boolean
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** Returns the TLS client certificate in DER. */
  certificate(): Buffer | undefined
}

/** The algorithms that proofs may use. */
export const PROOF_ALGORITHMS: readonly string[] = ['ES256', 'PS256', 'EdDSA', 'Ed25519', 'RS256']
const MAX_AGE_MS = 60_000
/** Bounds of the time by which a client's clock may be ahead; between them, `tokens.leeway` decides. */
const MIN_LEEWAY_MS = 10_000
const MAX_LEEWAY_MS = 60_000
const MAX_PROOF = 8 * 1024
const MAX_JTI = 256
const CACHED_KEYS = 1000

export const invalidProof = (description: string, cause: string) => ({
  error: 'invalid_dpop_proof' as const,
  description,
  cause,
})

/** A proof that is a signed JWT of the right kind. */
interface ParsedProof {
  readonly jws: Jws
  readonly claims: JsonObject
}

/** Parses the one proof of a sender. */
function parseProof({ proofs }: Sender): ParsedProof | CredentialsError {
  const [proof] = proofs
  if (proof === undefined || proofs.length > 1)
    return invalidProof('Send one DPoP header, with one proof.', `headers: ${proofs.length}`)
  const jws = proof.length > MAX_PROOF ? undefined : parseJws(proof)
  const claims = parseObject(jws?.payload)
  if (!jws || !claims)
    return invalidProof(
      'The DPoP proof is malformed.',
      proof.length > MAX_PROOF
        ? `accepted: ${MAX_PROOF} characters; of the proof: ${proof.length}`
        : malformedCause(proof),
    )
  const { typ, alg } = jws.header
  if (typ !== 'dpop+jwt' || needsExtension(jws.header) || !PROOF_ALGORITHMS.some((one) => one === alg))
    return invalidProof(
      'The proof needs typ dpop+jwt, no crit and one of the offered algs.',
      headerCause(jws.header, PROOF_ALGORITHMS),
    )
  return { jws, claims }
}

/**
 * Creates the verification of DPoP proofs for `hosts` (lower case, no port); proofs for other hosts
 * are refused. Requires no nonces (section 9, optional): the age limits proofs that are made ahead
 * of time, and a client that waits for a nonce would call twice. `tokenLeewayMs` is the greatest
 * `leeway` of the issuers.
 */
export function createVerifyProof(hosts: readonly string[], tokenLeewayMs = 0): VerifyProof {
  const leewayMs = Math.min(MAX_LEEWAY_MS, Math.max(MIN_LEEWAY_MS, tokenLeewayMs))
  const keys = new LRUCache<string, VerificationKey>({ max: CACHED_KEYS })

  /**
   * Returns true if `htu` is the URL that the sender requested (RFC 9449 section 4.3), at one of
   * `hosts`.
   */
  function isRequestedUrl(htu: unknown, sender: Sender): boolean {
    const claimed = normalizeUrl(htu)
    const requested = normalizeUrl(urlOf(sender))
    // Another server that receives proofs could put its own host in the Host field here.
    return claimed !== undefined && claimed.href === requested?.href && hosts.includes(claimed.hostname)
  }

  /** Refuses a proof that is not signed by the key of the token. */
  async function refuseSignature(jws: Jws, { jkt }: Binding): Promise<CredentialsError | undefined> {
    const { alg, jwk } = jws.header
    const canonical = canonicalJwk(jwk)
    if (canonical === undefined) return invalidProof('The DPoP proof holds no public key.', jwkCause(jwk))
    const thumbprint = sha256(canonical)
    if (thumbprint !== jkt)
      return invalidToken(
        'The access token is bound to another key.',
        mismatch('jkt', thumbprint, [jkt], 'proof'),
      )
    // Imported only now, as it is the key of the token, and cached: a client signs many proofs with
    // it.
    const key = keys.get(canonical) ?? (await readKey(JSON.parse(canonical)))
    keys.set(canonical, key)
    if (key?.algorithms.has(alg) && verifyJws(jws, key.key)) return undefined
    return invalidProof(
      'The DPoP proof has an invalid signature.',
      `key of the proof: ${jkt}; ${key?.algorithms.has(alg) ? '' : 'not usable for '}alg: ${shown(alg)}`,
    )
  }

  /** Refuses a proof that was made for another request or token, or at another time. */
  function refuseClaims({ htm, htu, iat, ath }: JsonObject, binding: Binding, sender: Sender) {
    if (htm !== sender.method)
      return invalidProof(
        'The DPoP proof is for another method.',
        mismatch('htm', htm, [sender.method], 'proof'),
      )
    if (!isRequestedUrl(htu, sender))
      return invalidProof(
        'The DPoP proof is for another URL.',
        urlCause(htu, urlOf(sender), hosts, sender.hidesPath),
      )
    if (ath !== binding.ath)
      return invalidProof(
        'The DPoP proof is for another access token.',
        `accepted ath: the SHA-256 of the token; of the proof: ${ath === undefined ? 'none' : 'another'}`,
      )
    const fault = ageFault(iat, leewayMs)
    if (fault === undefined) return undefined
    return invalidProof(
      `The DPoP proof ${fault}.`,
      `iat: ${shown(iat)}; now: ${Math.floor(Date.now() / 1000)}`,
    )
  }

  return async (binding, sender) => {
    const proof = parseProof(sender)
    if ('error' in proof) return proof
    const { jws, claims } = proof
    const refusal = (await refuseSignature(jws, binding)) ?? refuseClaims(claims, binding, sender)
    if (refusal !== undefined) return refusal
    const { jti } = claims
    if (typeof jti !== 'string' || jti === '' || jti.length > MAX_JTI)
      return invalidProof(
        'The DPoP proof has no jti, or one that is too long.',
        `accepted jti: a text of at most ${MAX_JTI} characters; of the proof: ${shown(jti)}`,
      )
    // A proof is valid from a leeway before its iat to its maximum age; another gateway's clock may
    // be a leeway behind.
    return { id: sha256(`${binding.jkt}.${jti}`), windowMs: MAX_AGE_MS + 2 * leewayMs }
  }
}

/** Returns the URL of a request, without its query. */
const urlOf = ({ scheme, host, path }: Sender): string => `${scheme}://${host}${path}`

/** Returns the fault in the age of a proof, as a phrase after its name: times in whole seconds. */
function ageFault(iat: unknown, leewayMs: number): string | undefined {
  if (typeof iat !== 'number' || !Number.isFinite(iat)) return 'has no iat that is a number'
  const ageMs = Date.now() - iat * 1000
  const accepted = `at most ${(ageMs < 0 ? leewayMs : MAX_AGE_MS) / 1000} s are accepted`
  if (ageMs < -leewayMs) return `is dated ${Math.ceil(-ageMs / 1000)} s in the future; ${accepted}`
  return ageMs > MAX_AGE_MS ? `is ${Math.ceil(ageMs / 1000)} s old; ${accepted}` : undefined
}

/** The required members of a key, in the order of RFC 7638 section 3.2 and RFC 8037 section 2. */
const MEMBERS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['RSA', ['e', 'kty', 'n']],
  ['EC', ['crv', 'kty', 'x', 'y']],
  ['OKP', ['crv', 'kty', 'x']],
])

/**
 * Returns a public key as JSON with only its required members; undefined for anything else, and for
 * a JWK with a secret.
 */
export function canonicalJwk(jwk: unknown): string | undefined {
  if (!isObject(jwk) || privateMember(jwk) !== undefined) return undefined
  const members = MEMBERS.get(jwk['kty'])
  if (!members?.every((name) => typeof jwk[name] === 'string')) return undefined
  return JSON.stringify(jwk, [...members])
}

/** An http(s) URI of RFC 3986 characters, without user information. */
const HTTP_URI = /^https?:\/\/[^\s/?#@\\"<>^`{|}]+(?:[/?#][!#-;=?-[\]_a-z~]*)?$/i

/**
 * Normalizes a URL without query and fragment (RFC 3986 section 6.2); returns undefined for other
 * text.
 */
function normalizeUrl(url: unknown) {
  if (typeof url !== 'string' || !HTTP_URI.test(url) || !URL.canParse(url)) return undefined
  const { origin, hostname, pathname } = new URL(url)
  const path = canonicalPath(pathname)
  return path === undefined ? undefined : { hostname, href: origin + path }
}

/**
 * Returns the scheme and the host of a request, by the socket or the `X-Forwarded-*` fields of a
 * `trusted` peer. `asked` is the host that a proxy asks about.
 */
export function originOf({ headers, socket }: IncomingMessage, trusted: boolean, asked?: string) {
  const forwarded = (name: string) =>
    trusted ? firstOf(headers[name]?.toString())?.toLowerCase() : undefined
  const scheme = forwarded('x-forwarded-proto') || ('encrypted' in socket ? 'https' : 'http')
  const host = asked ?? (forwarded('x-forwarded-host') || (headers.host ?? ''))
  return { scheme, host }
}
