/** Who makes a request, as far as it has proved it. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, as `createNames` names it. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
}

/** Names a client or a user of an issuer; of the first one, unless told. */
export type NameOf = (id: string, issuer?: string) => string

/**
 * Tells clients and users of several issuers apart by name: those of the first by their ids alone, others as `id@issuer`. So is an
 * id of the first that ends as if it were another's, so that none can pass for another: what follows the last `@` of a name
 * is the issuer, or the name is an id of the first.
 */
export function createNames(issuers: readonly string[]): NameOf {
  const [first, ...others] = issuers
  if (others.length === 0) return (id) => id
  const marks = new Map(
    issuers.map((issuer) => [issuer, `@${issuer.replaceAll('%', '%25').replaceAll('@', '%40')}`]),
  )
  const isMarked = (id: string): boolean =>
    id.includes('@') && [...marks.values()].some((mark) => id.endsWith(mark))
  return (id, issuer = first!) => (issuer === first && !isMarked(id) ? id : `${id}${marks.get(issuer)}`)
}
