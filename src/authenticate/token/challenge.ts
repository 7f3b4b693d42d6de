import { badRequest, type RefusalDetails, Refusal } from '../../errors.ts'

/** The refusals of one scheme, each with its challenge. */
interface SchemeChallenges {
  /** 400 `invalid_request`: the credentials cannot be read, or could be read in two ways. */
  readonly invalidRequest: (description: string) => Refusal
  /** 401 `invalid_token`. */
  readonly invalidToken: (description: string) => Refusal
}

/** The refusals of RFC 6750 section 3.1 and RFC 9449 section 7.1. */
export interface Challenges {
  /** 401 without an error code: the caller said nothing that counts here. */
  readonly noCredentials: () => Refusal
  readonly bearer: SchemeChallenges
  readonly dpop: SchemeChallenges & {
    /** 401 `invalid_dpop_proof`. */
    readonly invalidProof: (description: string) => Refusal
  }
  /** 401 `invalid_token` to a DPoP-bound token sent as Bearer; names the scheme that it needs, too. */
  readonly boundToKey: (description: string) => Refusal
}

/**
 * Makes the refusals of one realm; with `algorithms`, those of DPoP proofs, the DPoP scheme is announced beside Bearer.
 * A description is plain ASCII without `"` and `\` (RFC 6750 section 3).
 */
export function createChallenges(realm: string, algorithms?: readonly string[]): Challenges {
  const quoted = `realm="${realm.replace(/["\\]/g, '\\$&')}"`
  const bearer = `Bearer ${quoted}`
  const dpop = `DPoP ${quoted}, algs="${algorithms?.join(' ') ?? ''}"`
  return {
    noCredentials: () =>
      new Refusal('Unauthorized', 'Send an access token as "Authorization: Bearer" and the token.', {
        headers: { 'WWW-Authenticate': algorithms === undefined ? bearer : [bearer, dpop] },
      }),
    bearer: challengesOf(bearer),
    dpop: {
      ...challengesOf(dpop),
      invalidProof: (description) => unauthorized([dpop], 'invalid_dpop_proof', description),
    },
    boundToKey: (description) => unauthorized([bearer, dpop], 'invalid_token', description),
  }
}

function challengesOf(challenge: string): SchemeChallenges {
  return {
    invalidRequest: (description) =>
      badRequest(description, because([challenge], 'invalid_request', description)),
    invalidToken: (description) => unauthorized([challenge], 'invalid_token', description),
  }
}

function unauthorized(challenges: readonly string[], error: string, description: string): Refusal {
  return new Refusal('Unauthorized', description, because(challenges, error, description))
}

/** The error goes with the scheme that was used, which is the first. */
function because([used, ...others]: readonly string[], error: string, description: string): RefusalDetails {
  const first = `${used}, error="${error}", error_description="${description}"`
  return {
    oauthError: error,
    headers: { 'WWW-Authenticate': others.length === 0 ? first : [first, ...others] },
  }
}
