import { hash } from 'node:crypto'
import type { Refusal } from '../../errors.ts'
import { type Challenges, type Fault, invalidToken, type Scheme } from '../token/challenge.ts'
import type { Identity } from '../token/claims.ts'
import type { Proof, Proofs, Sender } from './dpop.ts'

/** What the sender of a token must hold (RFC 7800 section 3): where both are set, both. */
export interface Confirmation {
  /** The key of its DPoP proofs, by SHA-256 thumbprint (RFC 9449 section 6.1). */
  readonly jkt?: string
  /** Its TLS client certificate, by SHA-256 (RFC 8705 section 3.1). */
  readonly x5t?: string
}

/**
 * A token that is bound to a key, whose proof is not verified yet. Until it is verified and charged, a request may only be
 * refused: a caller over its limit costs no signature.
 */
export interface Bound {
  readonly identity: Identity
  /** Verifies the proof. Never rejects. */
  prove(): Promise<Proof | Refusal>
  /** The refusal of a proof that was used before. */
  replayed(): Refusal
}

const SHA256 = /^[\w-]{43}$/
const REPLAYED: Fault = { error: 'invalid_dpop_proof', description: 'The DPoP proof was used before.' }

/** Reads a `cnf` claim; undefined where it is empty, or holds anything that cannot be checked here. */
export function readConfirmation(cnf: unknown): Confirmation | undefined {
  if (typeof cnf !== 'object' || cnf === null) return undefined
  const { jkt, 'x5t#S256': x5t, ...others } = cnf as Readonly<Record<string, unknown>>
  if (Object.keys(others).length > 0 || (jkt === undefined && x5t === undefined)) return undefined
  if ((jkt !== undefined && !isThumbprint(jkt)) || (x5t !== undefined && !isThumbprint(x5t))) return undefined
  return { ...(jkt !== undefined && { jkt }), ...(x5t !== undefined && { x5t }) }
}

function isThumbprint(value: unknown): value is string {
  return typeof value === 'string' && SHA256.test(value)
}

/**
 * Checks that the sender of a token is the one that it is bound to. Without `proofs` a token that is bound to a key is refused;
 * without a sender every bound one. `digest` is the base64url SHA-256 of the token.
 */
export function createConfirm({ refuse }: Challenges, proofs: Proofs | undefined) {
  return function confirm(
    identity: Identity,
    scheme: Scheme,
    digest: string,
    sender: Sender | undefined,
  ): Identity | Bound | Refusal {
    const { jkt, x5t } = identity.confirmation ?? {}
    if (scheme === 'dpop' && jkt === undefined) {
      return refuse(
        invalidToken('The access token is not bound to a key; send it as a Bearer token.'),
        scheme,
      )
    }
    // RFC 9449 section 7.2: otherwise a thief of the token would just leave the proof out.
    if (scheme === 'bearer' && jkt !== undefined && proofs !== undefined) {
      const fault = 'The access token is bound to a key; send it as a DPoP token, with a proof.'
      return refuse(invalidToken(fault), scheme, 'dpop')
    }
    if (sender === undefined || (jkt !== undefined && proofs === undefined)) {
      const fault = 'The access token is bound to a key of its client, which cannot be checked here.'
      return refuse(invalidToken(fault), scheme)
    }
    const certificate = x5t === undefined ? undefined : sender.certificate()
    if (x5t !== (certificate && hash('sha256', certificate, 'base64url'))) {
      const fault = 'The access token is bound to a TLS client certificate, which did not come with it.'
      return refuse(invalidToken(fault), scheme)
    }
    if (jkt === undefined) return identity
    return {
      identity,
      async prove() {
        const proof = await proofs!.verify({ jkt, ath: digest }, sender)
        return 'error' in proof ? refuse(proof, scheme) : proof
      },
      replayed: () => refuse(REPLAYED, scheme),
    }
  }
}
