import { hash } from 'node:crypto'
import type { Refusal } from '../../errors.ts'
import { type Challenges, type CredentialsError, invalidToken, type Scheme } from '../token/challenge.ts'
import type { Identity } from '../token/claims.ts'
import type { Proof, Proofs, Sender } from './dpop.ts'

/** What the sender of a token must hold (RFC 7800 section 3): where both are set, both. */
export interface Confirmation {
  /** The key of its DPoP proofs, by SHA-256 thumbprint (RFC 9449 section 6.1). */
  readonly jkt?: string | undefined
  /** Its TLS client certificate, by SHA-256 (RFC 8705 section 3.1). */
  readonly x5t?: string | undefined
}

/** A token bound to a key. Until its proof is verified and charged, a request may only be refused: that costs no signature. */
export interface SenderConstrainedToken {
  readonly identity: Identity
  /** Verifies the proof. Never rejects. */
  prove(): Promise<Proof | Refusal>
  /** The refusal of a proof that was used before. */
  replayed(): Refusal
}

const SHA256 = /^[\w-]{43}$/
const REPLAYED: CredentialsError = {
  error: 'invalid_dpop_proof',
  description: 'The DPoP proof was used before.',
}

/** Reads a `cnf` claim; undefined where it is empty, or holds anything that cannot be checked here. */
export function readConfirmation(cnf: unknown): Confirmation | undefined {
  if (typeof cnf !== 'object' || cnf === null) return undefined
  const { jkt, 'x5t#S256': x5t, ...others } = cnf as Readonly<Record<string, unknown>>
  const thumbprints = [jkt, x5t].filter((one) => one !== undefined)
  if (Object.keys(others).length > 0 || thumbprints.length === 0) return undefined
  return thumbprints.every((one) => typeof one === 'string' && SHA256.test(one))
    ? ({ jkt, x5t } as Confirmation)
    : undefined
}

/**
 * Checks that the sender of a token is the one that it is bound to. Without `proofs` a token that is bound to a key is refused;
 * without a sender every bound one.
 */
export function createConfirm(challenges: Challenges, proofs: Proofs | undefined) {
  function refuse(fault: CredentialsError, { client }: Identity, scheme: Scheme, other?: Scheme): Refusal {
    return challenges.refuse({ ...fault, client }, scheme, other)
  }

  return function confirm(
    identity: Identity,
    scheme: Scheme,
    token: string,
    sender?: Sender,
  ): Identity | SenderConstrainedToken | Refusal {
    const { jkt, x5t } = identity.confirmation ?? {}
    const certificate = x5t === undefined ? undefined : sender?.certificate()
    let fault: string | undefined
    if (scheme === 'dpop' && jkt === undefined) {
      fault = 'The access token is not bound to a key; send it as a Bearer token.'
    } else if (scheme === 'bearer' && jkt !== undefined && proofs !== undefined) {
      // RFC 9449 section 7.2: otherwise a thief of the token would just leave the proof out.
      fault = 'The access token is bound to a key; send it as a DPoP token, with a proof.'
      return refuse(invalidToken(fault), identity, scheme, 'dpop')
    } else if (sender === undefined || (jkt !== undefined && proofs === undefined)) {
      fault = 'The access token is bound to a key of its client, which cannot be checked here.'
    } else if (x5t !== (certificate && hash('sha256', certificate, 'base64url'))) {
      fault = 'The access token is bound to a TLS client certificate, which did not come with it.'
    }
    if (fault !== undefined) return refuse(invalidToken(fault), identity, scheme)
    if (jkt === undefined) return identity
    return {
      identity,
      async prove() {
        const proof = await proofs!.verify({ jkt, ath: hash('sha256', token, 'base64url') }, sender!)
        return 'error' in proof ? refuse(proof, identity, scheme) : proof
      },
      replayed: () => refuse(REPLAYED, identity, scheme),
    }
  }
}
