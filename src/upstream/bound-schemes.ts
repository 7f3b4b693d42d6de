/**
 * Schemes by which a server authenticates a connection instead of a request: NTLM and Negotiate
 * (RFC 4559), and those of the same kind that Windows servers offer. Found anywhere in a value, as
 * a server may read several challenges in one field: a realm with such a word costs a connection.
 */
const BOUND_SCHEME = /\b(?:credssp|kerberos|nego2|negotiate|ntlm)\b/i

/** Maximum characters before the end of the first scheme of a value. */
const FIRST_SCHEME = 16

/** Returns true if a challenge of a server names a scheme that authenticates a connection. */
export const challengesConnection = (challenge: string): boolean => BOUND_SCHEME.test(challenge)

/**
 * Returns true if credentials may authenticate their connection. Searching a whole token would take
 * 0.7 us; only a list, which a lenient server may accept, has another scheme than the first.
 */
export function authenticatesConnection(credentials: string | undefined): boolean {
  if (credentials === undefined) return false
  return BOUND_SCHEME.test(credentials.includes(',') ? credentials : credentials.slice(0, FIRST_SCHEME))
}
