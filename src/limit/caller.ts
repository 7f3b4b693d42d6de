/** Who makes a request; only what was proved. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, as `createNames` names it. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
}

/**
 * Names the clients and users of several issuers so that none can pass for another: those of the first by their ids, others as
 * `id@issuer`; and so an id of the first that ends like one of these.
 */
export function createNames(issuers: readonly string[]): (id: string, issuer?: string) => string {
  const [first, ...others] = issuers
  if (others.length === 0) return (id) => id
  const marks = new Map(
    issuers.map((issuer) => [issuer, `@${issuer.replaceAll('%', '%25').replaceAll('@', '%40')}`]),
  )
  const isMarked = (id: string): boolean =>
    id.includes('@') && [...marks.values()].some((mark) => id.endsWith(mark))
  return (id, issuer = first!) => (issuer === first && !isMarked(id) ? id : `${id}${marks.get(issuer)}`)
}
