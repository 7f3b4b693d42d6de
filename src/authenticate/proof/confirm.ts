import type { Refusal } from '../../errors.ts'
import type { Identity } from '../token/access-token.ts'
import { certificateThumbprint } from '../../downstream/client-certificate.ts'
import type { Challenges } from '../token/challenge.ts'
import type { Proof, ProofFault, Proofs } from './dpop.ts'
import type { Sender } from './sender.ts'

/** The schemes under which a token may be sent. */
export type Scheme = 'bearer' | 'dpop'

/**
 * Whose token a request came with that is bound to a key. Nothing is to be done for its sender until the proof is verified and
 * charged, but to refuse it: a caller whose calls are refused from memory costs no signature.
 */
export interface Bound {
  readonly identity: Identity
  /** Verifies the proof; a refusal where it is none. Never rejects. */
  prove(): Promise<Proof | Refusal>
  /** The refusal of a proof that was used before. */
  replayed(): Refusal
}

/** Tells whether the sender of a token, which is somebody's, is the one it is bound to. Never rejects. */
export type Confirm = (
  identity: Identity,
  scheme: Scheme,
  /** The base64url SHA-256 of the token. */
  digest: string,
  sender: Sender | undefined,
) => Identity | Bound | Refusal

/** Holds tokens to their `cnf`. Without `proofs`, or for a request of which nothing is known, a bound token is refused. */
export function createConfirm(challenges: Challenges, proofs: Proofs | undefined): Confirm {
  const { dpop } = challenges
  return function confirm(identity, scheme, digest, sender) {
    const { jkt, x5t } = identity.confirmation ?? {}
    if (scheme === 'dpop' && jkt === undefined) {
      return dpop.invalidToken('The access token is not bound to a key; send it as a Bearer token.')
    }
    // RFC 9449 section 7.2: otherwise whoever steals the token would just leave the proof out.
    if (scheme === 'bearer' && jkt !== undefined && proofs !== undefined) {
      return challenges.boundToKey(
        'The access token is bound to a key; send it as a DPoP token, with a proof.',
      )
    }
    const { invalidToken } = challenges[scheme]
    if (sender === undefined || (jkt !== undefined && proofs === undefined)) {
      return invalidToken('The access token is bound to a key of its client, which cannot be checked here.')
    }
    if (x5t !== undefined) {
      const certificate = sender.certificate()
      if (certificate === undefined) {
        return invalidToken('The access token is bound to a TLS client certificate, and none came with it.')
      }
      if (certificateThumbprint(certificate) !== x5t) {
        return invalidToken('The access token is bound to another TLS client certificate.')
      }
    }
    return jkt === undefined ? identity : bound(identity, jkt, digest, sender)
  }

  function bound(identity: Identity, jkt: string, ath: string, sender: Sender): Bound {
    return {
      identity,
      async prove() {
        const proof = await proofs!.verify({ jkt, ath }, sender)
        return 'error' in proof ? refuse(proof) : proof
      },
      replayed: () => dpop.invalidProof('The DPoP proof was used before.'),
    }
  }

  function refuse({ error, description }: ProofFault): Refusal {
    return error === 'invalid_token' ? dpop.invalidToken(description) : dpop.invalidProof(description)
  }
}
