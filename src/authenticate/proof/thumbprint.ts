import { hash } from 'node:crypto'
import type { JsonObject } from '../token/jws.ts'

/** The members that make up a key, in the order of RFC 7638 section 3.2 and RFC 8037 section 2. */
const MEMBERS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['RSA', ['e', 'kty', 'n']],
  ['EC', ['crv', 'kty', 'x', 'y']],
  ['OKP', ['crv', 'kty', 'x']],
])

/** A public key with nothing beside what makes it up. */
export interface PublicJwk {
  readonly jwk: Readonly<Record<string, string>>
  /** Its SHA-256 thumbprint (RFC 7638 section 3). */
  readonly thumbprint: string
}

/** Every member of a private or symmetric key (RFC 7518 section 6). */
const PRIVATE = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

/** Takes the public key out of a JWK; undefined where it is none, or holds a secret. */
export function readPublicJwk(value: unknown): PublicJwk | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const members = MEMBERS.get((value as JsonObject)['kty'])
  if (members === undefined || PRIVATE.some((name) => name in value)) return undefined
  const jwk: Record<string, string> = {}
  for (const name of members) {
    const member = (value as JsonObject)[name]
    if (typeof member !== 'string') return undefined
    jwk[name] = member
  }
  return { jwk, thumbprint: hash('sha256', JSON.stringify(jwk), 'base64url') }
}
