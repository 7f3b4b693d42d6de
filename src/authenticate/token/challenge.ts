import { Refusal, serviceUnavailable } from '../../errors.ts'
import { mismatch } from '../jose/cause.ts'
import { type CredentialsError, invalidToken } from '../jose/credentials-error.ts'
import { sha256 } from '../jose/sha256.ts'
import { invalidProof, type Proof, PROOF_ALGORITHMS, type Sender, type VerifyProof } from '../proof/dpop.ts'
import type { Identity } from './claims.ts'
import { metadataUrl } from './resource-metadata.ts'

export type Scheme = 'bearer' | 'dpop'

type Challenges = ReturnType<typeof createChallenges>

/**
 * Creates refusals that challenge for a realm; with `offersDpop`, also for the DPoP scheme. They
 * name the metadata of the `resource`, if any (RFC 9728 section 5.1).
 */
export function createChallenges(realm: string, offersDpop: boolean, resource?: string) {
  const orDpop = offersDpop ? ', or as DPoP with a proof' : ''
  const how = `Send an access token as "Authorization: Bearer TOKEN"${orDpop}, not in the query.`
  const quoted = `realm="${realm.replace(/["\\]/g, '\\$&')}"${metadataParameter(resource)}`
  const challenges = {
    bearer: `Bearer ${quoted}`,
    dpop: `DPoP ${quoted}, algs="${PROOF_ALGORITHMS.join(' ')}"`,
  }
  const offered = offersDpop ? Object.values(challenges) : challenges.bearer
  return {
    /**
     * A 401 without an error code, for a request without credentials, or with those of another
     * scheme.
     */
    noCredentials: new Refusal('Unauthorized', how, { headers: { 'WWW-Authenticate': offered } }),
    /**
     * Returns a 400, 401 or 503 with the challenge of the scheme that was `used`, and of the scheme
     * that is `needed` in its place.
     */
    refuse({ error, description, cause, client }: CredentialsError, used: Scheme, needed?: Scheme) {
      if (error === 'unavailable') return serviceUnavailable(description, cause)
      const challenge = `${challenges[used]}, error="${error}", error_description="${description}"`
      return new Refusal(error === 'invalid_request' ? 'BadRequest' : 'Unauthorized', description, {
        oauthError: error,
        cause,
        client,
        headers: {
          'WWW-Authenticate': needed && offersDpop ? [challenge, challenges[needed]] : challenge,
        },
      })
    },
  }
}

const metadataParameter = (resource: string | undefined): string =>
  resource === undefined ? '' : `, resource_metadata="${metadataUrl(resource)}"`

/**
 * Returns a 403 `insufficient_scope` unless a token has all of these scopes (RFC 6750 section 3.1).
 */
export function requireScope(identity: Identity, scopes: readonly string[], resource?: string) {
  if (scopes.length === 0) return undefined
  // RFC 6749 section 3.3: case-sensitive, ASCII without `"` and `\`, in any order, separated by
  // spaces.
  const held = identity.scope?.split(' ') ?? []
  const missing = scopes.filter((scope) => !held.includes(scope))
  if (missing.length === 0) return undefined
  const scheme = identity.confirmation?.jkt === undefined ? 'Bearer' : 'DPoP'
  const description = `This path needs the scope ${missing.join(' ')}, which the access token lacks.`
  const error = 'insufficient_scope'
  const needed = `error_description="${description}", scope="${scopes.join(' ')}"${metadataParameter(resource)}`
  const headers = { 'WWW-Authenticate': `${scheme} error="${error}", ${needed}` }
  const cause = mismatch('scope', identity.scope, scopes)
  return new Refusal('Forbidden', description, { oauthError: error, cause, headers })
}

/**
 * A token bound to a key, whose proof is not verified yet. Until it is, the request may be refused
 * but not admitted.
 */
export interface BoundToken {
  readonly identity: Identity
  /** Verifies the proof. Never rejects. */
  prove(): Promise<Proof | Refusal>
  replayed(): Refusal
}

/**
 * Creates the check that a token's sender is the one it is bound to. Without `verifyProof`, it
 * refuses tokens bound to a key; without a sender, all bound tokens.
 */
export function createConfirm(challenges: Challenges, verifyProof: VerifyProof | undefined) {
  return (identity: Identity, scheme: Scheme, token: string, sender?: Sender) => {
    const { client, confirmation: { jkt, x5t } = {} } = identity
    const refuse = (error: CredentialsError, other?: Scheme): Refusal =>
      challenges.refuse({ ...error, client }, scheme, other)
    if (scheme === 'dpop' && jkt === undefined)
      return refuse(
        invalidToken(
          'The access token is not bound to a key; send it as Bearer.',
          'the token has no cnf with jkt',
        ),
      )
    if (scheme === 'bearer' && jkt !== undefined && verifyProof !== undefined) {
      // RFC 9449 section 7.2: a thief of the token could otherwise omit the proof.
      const description = 'The access token is bound to a key; send it as DPoP, with a proof.'
      return refuse(invalidToken(description, `cnf of the token: jkt ${jkt}; scheme: Bearer`), 'dpop')
    }
    if (sender === undefined || (jkt !== undefined && verifyProof === undefined))
      return refuse(
        invalidToken(
          'The access token is bound to a key that cannot be checked here.',
          `cnf of the token: jkt ${jkt}; set listen.hosts or listen.publicUrl`,
        ),
      )
    const certificate = x5t === undefined ? undefined : sender.certificate()
    const thumbprint = certificate && sha256(certificate)
    if (x5t !== thumbprint)
      return refuse(
        invalidToken(
          'Send the TLS client certificate that the token is bound to.',
          mismatch('x5t#S256', thumbprint, [x5t], 'certificate'),
        ),
      )
    if (jkt === undefined) return identity
    return {
      identity,
      async prove(): Promise<Proof | Refusal> {
        const proof = await verifyProof!({ jkt, ath: sha256(token) }, sender)
        return 'error' in proof ? refuse(proof) : proof
      },
      replayed: () => refuse(invalidProof('The DPoP proof was used before.', `its jti, by the key ${jkt}`)),
    }
  }
}
