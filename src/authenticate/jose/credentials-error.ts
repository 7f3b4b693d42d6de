/** An error of credentials (RFC 6750 section 3.1, RFC 9449 section 7.1). */
export interface CredentialsError {
  readonly error: 'invalid_request' | 'invalid_token' | 'invalid_dpop_proof' | 'unavailable'
  /** Text for the caller: ASCII without `"` and `\` (RFC 6750 section 3). */
  readonly description: string
  /** The scheme by which the caller should send a token instead. */
  readonly needed?: 'dpop'
  /** The underlying error, and the client if the issuer vouches for it; both for the log. */
  readonly cause?: unknown
  readonly client?: string
}

export function invalidToken(description: string, cause?: string): CredentialsError {
  return { error: 'invalid_token', description, cause }
}
