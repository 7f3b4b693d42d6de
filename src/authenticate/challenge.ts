import { badRequest, GatewayError } from '../errors.ts'

/** The refusals of RFC 6750 section 3.1, each with its challenge. */
export interface Challenges {
  /** 401 without an error code: the caller said nothing that counts here. */
  readonly noCredentials: () => GatewayError
  /** 400 `invalid_request`: the credentials cannot be read, or could be read in two ways. */
  readonly invalidRequest: (description: string) => GatewayError
  /** 401 `invalid_token`. */
  readonly invalidToken: (description: string) => GatewayError
}

/** Makes the refusals of one realm. A description is plain ASCII without `"` and `\` (RFC 6750 section 3). */
export function createChallenges(realm: string): Challenges {
  const challenge = `Bearer realm="${realm.replace(/["\\]/g, '\\$&')}"`
  const because = (error: string, description: string) => ({
    oauthError: error,
    headers: { 'WWW-Authenticate': `${challenge}, error="${error}", error_description="${description}"` },
  })
  return {
    noCredentials: () =>
      new GatewayError('Unauthorized', 'Send an access token as "Authorization: Bearer" and the token.', {
        headers: { 'WWW-Authenticate': challenge },
      }),
    invalidRequest: (description) => badRequest(description, because('invalid_request', description)),
    invalidToken: (description) =>
      new GatewayError('Unauthorized', description, because('invalid_token', description)),
  }
}
