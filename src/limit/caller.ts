/** Who makes a request; only what was proved. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, named as in authenticate/token/claims.ts. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
}
