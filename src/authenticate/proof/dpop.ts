import { hash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { LRUCache } from 'lru-cache'
import { canonicalEscapes } from '../../downstream/target.ts'
import type { CredentialsError } from '../token/challenge.ts'
import { needsExtension } from '../token/claims.ts'
import { isObject, type JsonObject, type Jws, parseJws, parseObject } from '../token/jws.ts'
import { type KeySet, privateMember, readKeySet } from '../token/key-set.ts'

/** True if this, in lower case and without its port, is a host of this gateway. Proofs for others are refused. */
type Serves = (host: string) => boolean

/** What a token requires of a proof: the thumbprint of its key, and the base64url SHA-256 of the token. */
type Binding = Readonly<Record<'jkt' | 'ath', string>>

/** A proof that is good, but may have been used before: it is to be charged beside the limits of its call. */
export interface Proof {
  /** The same for the same proof alone. */
  readonly id: string
  /** How long it must not be accepted again: the same for each use, until the proof is too old. */
  readonly windowMs: number
}

export type Proofs = ReturnType<typeof createProofs>

/** What a request shows of its sender, beside the token. */
export interface Sender {
  readonly method: string
  readonly scheme: string
  /** With its port, unless that is the scheme's own. */
  readonly host: string
  /** The canonical path. */
  readonly path: string
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** The TLS client certificate in DER. */
  certificate(): Buffer | undefined
}

const ALGORITHMS: readonly string[] = ['ES256', 'PS256', 'EdDSA', 'Ed25519', 'RS256']
/** How old a proof may be. */
const MAX_AGE_MS = 60_000
/** How far ahead of this clock a client's may be. */
const LEEWAY_MS = 5000
const MAX_PROOF = 8 * 1024
const MAX_JTI = 256
const KNOWN_KEYS = 1000

const invalid = (description: string): CredentialsError => ({ error: 'invalid_dpop_proof', description })

/**
 * Verifies proofs of possession by RFC 9449 section 4.3. Nonces (section 9), which are optional, are not required: proofs made
 * ahead of time are limited by their age, and a client that waits for a nonce would call twice.
 */
export function createProofs(serves: Serves) {
  const keys = new LRUCache<string, KeySet>({ max: KNOWN_KEYS })

  /** Verifies the one proof that the request carries. Asks no store; never rejects. */
  async function verify(binding: Binding, sender: Sender): Promise<Proof | CredentialsError> {
    const [proof, ...more] = sender.proofs
    if (proof === undefined || more.length > 0) return invalid('Send one DPoP header, with one proof.')
    const jws = proof.length > MAX_PROOF ? undefined : parseJws(proof)
    const claims = parseObject(jws?.payload)
    if (jws === undefined || claims === undefined) return invalid('The DPoP proof is malformed.')
    const { typ, alg, jwk } = jws.header
    if (typ !== 'dpop+jwt' || needsExtension(jws.header) || !ALGORITHMS.includes(alg as string)) {
      return invalid(
        `The DPoP proof must have the typ dpop+jwt, no crit, and an alg of ${ALGORITHMS.join(', ')}.`,
      )
    }
    const key = canonicalJwk(jwk)
    if (key === undefined) return invalid('The DPoP proof holds no public key.')
    if (thumbprintOf(key) !== binding.jkt) {
      return { error: 'invalid_token', description: 'The access token is bound to another key.' }
    }
    if (!(await isSigned(jws, key))) return invalid('The signature of the DPoP proof is not valid.')
    return checkClaims(claims, binding, sender)
  }

  /** Keys are imported once they are known to be some token's, and cached: a client signs many proofs with one. */
  async function isSigned(jws: Jws, jwk: string): Promise<boolean> {
    let set = keys.get(jwk)
    if (set === undefined) {
      set = await readKeySet({ keys: [JSON.parse(jwk)] })
      keys.set(jwk, set)
    }
    return set.verifies(jws, undefined)
  }

  function checkClaims(claims: JsonObject, binding: Binding, sender: Sender): Proof | CredentialsError {
    const { jti, htm, htu, iat, ath } = claims
    if (htm !== sender.method) return invalid('The DPoP proof is for another method.')
    if (!isHtuOf(htu, sender, serves)) return invalid('The DPoP proof is for another URL.')
    if (ath !== binding.ath) return invalid('The DPoP proof is for another access token.')
    if (typeof jti !== 'string' || jti === '' || jti.length > MAX_JTI) {
      return invalid('The DPoP proof has no jti, or one that is too long.')
    }
    const ageMs = typeof iat === 'number' ? Date.now() - iat * 1000 : Infinity
    if (!(ageMs <= MAX_AGE_MS && ageMs >= -LEEWAY_MS)) {
      return invalid(`The DPoP proof has no iat of the last ${MAX_AGE_MS / 1000} seconds.`)
    }

    // From the leeway before its iat to its age after it, and by another gateway's clock a leeway longer.
    return { id: hash('sha256', `${binding.jkt}.${jti}`, 'base64url'), windowMs: MAX_AGE_MS + 2 * LEEWAY_MS }
  }

  return { algorithms: ALGORITHMS, verify }
}

/** The members that make up a key, in the order of RFC 7638 section 3.2 and RFC 8037 section 2. */
const MEMBERS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['RSA', ['e', 'kty', 'n']],
  ['EC', ['crv', 'kty', 'x', 'y']],
  ['OKP', ['crv', 'kty', 'x']],
])

/** A public key as JSON, with no members but those that make it up; undefined where a JWK is none, or holds a secret. */
export function canonicalJwk(jwk: unknown): string | undefined {
  if (!isObject(jwk) || privateMember(jwk) !== undefined) return undefined
  const members = MEMBERS.get(jwk['kty'])
  if (members === undefined || members.some((name) => typeof jwk[name] !== 'string')) return undefined
  return JSON.stringify(jwk, [...members])
}

/** The SHA-256 thumbprint (RFC 7638 section 3). Not by jose, which takes 30 us of processor time instead of 1. */
export function thumbprintOf(canonical: string): string {
  return hash('sha256', canonical, 'base64url')
}

/** An http(s) URI of RFC 3986 characters, without user information. */
const HTTP_URI = /^https?:\/\/[^\s/?#@\\"<>^`{|}]+(?:[/?#][!#-;=?-[\]_a-z~]*)?$/i

/** True if `htu` is the URL that the sender requested (RFC 9449 section 4.3), at a host that is served here. */
function isHtuOf(htu: unknown, { scheme, host, path }: Sender, serves: Serves): boolean {
  if (typeof htu !== 'string') return false
  const claimed = normalizeUrl(htu)
  const requested = normalizeUrl(`${scheme}://${host}${path}`)
  // The receiver of a proof for its own host could put that host in a Host header here.
  return claimed !== undefined && claimed.href === requested?.href && serves(claimed.hostname)
}

/** Normalises a URL without query and fragment (RFC 3986 section 6.2); undefined where it is none. */
function normalizeUrl(url: string): { readonly hostname: string; readonly href: string } | undefined {
  if (!HTTP_URI.test(url) || !URL.canParse(url)) return undefined
  const { origin, hostname, pathname } = new URL(url)
  const path = canonicalEscapes(pathname)
  return path === undefined ? undefined : { hostname, href: origin + path }
}

/** The sender of a request, with the URL that it requested, as the socket or, where the peer is `trusted`, its `X-Forwarded-*` fields show it. */
export function senderOf(
  { headers, socket, method = '' }: IncomingMessage,
  trusted: boolean,
  rest: Pick<Sender, 'path' | 'proofs' | 'certificate'>,
): Sender {
  // Of a list the first, which is what the proxy next to the caller wrote.
  const forwarded = (name: string): string => {
    const [first] = trusted ? String(headers[name] ?? '').split(',', 1) : []
    return first?.trim().toLowerCase() ?? ''
  }
  const scheme = forwarded('x-forwarded-proto') || ('encrypted' in socket ? 'https' : 'http')
  const host = forwarded('x-forwarded-host') || (headers.host ?? '')
  return { ...rest, method, scheme, host }
}
