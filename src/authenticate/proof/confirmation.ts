/** What the sender of a token must hold (RFC 7800 section 3): of two things, both. */
export interface Confirmation {
  /** The key of its DPoP proofs, by SHA-256 thumbprint (RFC 9449 section 6.1). */
  readonly jkt?: string
  /** Its TLS client certificate, by SHA-256 (RFC 8705 section 3.1). */
  readonly x5t?: string
}

const SHA256 = /^[\w-]{43}$/

/** Reads a `cnf` claim; undefined where it asks for anything that cannot be checked here, or for nothing. */
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
