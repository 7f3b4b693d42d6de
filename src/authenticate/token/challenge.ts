import { Refusal, serviceUnavailable } from '../../errors.ts'
import type { Identity } from './claims.ts'

/** The schemes under which a token may be sent. */
export type Scheme = 'bearer' | 'dpop'

/** What is wrong with credentials (RFC 6750 section 3.1, RFC 9449 section 7.1). */
export interface CredentialsError {
  readonly error: 'invalid_request' | 'invalid_token' | 'invalid_dpop_proof' | 'temporarily_unavailable'
  /** For the caller: ASCII without `"` and `\` (RFC 6750 section 3). */
  readonly description: string
  /** For the log. */
  readonly cause?: unknown
  /** The client, where the issuer vouches for it although the token is refused; for the log. */
  readonly client?: string
}

/** The token is at fault; `cause` is for the log. */
export function invalidToken(description: string, cause?: string): CredentialsError {
  return { error: 'invalid_token', description, cause }
}

/** 503: what is needed to verify a token is not available. */
export function unverifiable(cause: unknown): CredentialsError {
  const description = 'Access tokens cannot be verified for now.'
  return { error: 'temporarily_unavailable', description, cause }
}

export type Challenges = ReturnType<typeof createChallenges>

/** Makes the refusals of one realm. With `algorithms`, those of DPoP proofs, the DPoP scheme is announced beside Bearer. */
export function createChallenges(realm: string, algorithms?: readonly string[]) {
  const how = `an access token as "Authorization: Bearer" and the token${algorithms === undefined ? '' : ', or as DPoP with a proof'}`
  const noToken = `Send ${how}. A token in the query is not read.`
  const otherScheme = `The scheme of the Authorization header is not accepted here. Send ${how}.`
  const quoted = `realm="${realm.replace(/["\\]/g, '\\$&')}"`
  const challenges = {
    bearer: `Bearer ${quoted}`,
    dpop: `DPoP ${quoted}, algs="${algorithms?.join(' ') ?? ''}"`,
  }
  return {
    /** 401 without an error code: there are no credentials, or they are of `another` scheme. */
    noCredentials: (another: boolean) =>
      new Refusal('Unauthorized', another ? otherScheme : noToken, {
        headers: {
          'WWW-Authenticate': algorithms === undefined ? challenges.bearer : Object.values(challenges),
        },
      }),
    /** 400, 401 or 503 with the challenge of the scheme that was used, and that of `other`, which is needed. */
    refuse({ error, description, cause, client }: CredentialsError, used: Scheme, other?: Scheme): Refusal {
      if (error === 'temporarily_unavailable') return serviceUnavailable(description, cause)
      const challenge = `${challenges[used]}, error="${error}", error_description="${description}"`
      return new Refusal(error === 'invalid_request' ? 'BadRequest' : 'Unauthorized', description, {
        oauthError: error,
        cause,
        client,
        headers: { 'WWW-Authenticate': other === undefined ? challenge : [challenge, challenges[other]] },
      })
    },
  }
}

/** 403 `insufficient_scope` unless a token has every one of these scopes (RFC 6750 section 3.1). */
export function requireScope(identity: Identity, scopes: readonly string[]): Refusal | undefined {
  if (scopes.length === 0) return undefined
  // RFC 6749 section 3.3: case-sensitive, in any order, with a space between.
  const held = identity.scope?.split(' ') ?? []
  if (scopes.every((scope) => held.includes(scope))) return undefined
  const missing = scopes.filter((scope) => !held.includes(scope))
  const scheme = identity.confirmation?.jkt === undefined ? 'Bearer' : 'DPoP'
  // Scopes are ASCII without `"` and `\` (RFC 6749 section 3.3).
  const what = `scope${missing.length === 1 ? '' : 's'} ${missing.join(' ')}`
  const description = `This path needs the ${what}, which the access token lacks.`
  return new Refusal('Forbidden', description, {
    oauthError: 'insufficient_scope',
    headers: {
      'WWW-Authenticate': `${scheme} error="insufficient_scope", error_description="${description}", scope="${scopes.join(' ')}"`,
    },
  })
}
