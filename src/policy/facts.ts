import { hash } from 'node:crypto'
import type { Params, Route } from '../downstream/router.ts'
import { parseObject } from '../runtime/json.ts'

type Claim = string | number | boolean

/** The verified identity of a request's sender. */
export interface Caller {
  /**
   * The OAuth API client, from the token's `tokens.clientClaim`, named by `createQualifier` of
   * authenticate/token/bearer.ts.
   */
  readonly client?: string | undefined
  /** The token's `sub`, named in the same way. */
  readonly user?: string | undefined
  /** The plan that the token names in `tokens.planClaim`; not every text is a plan. */
  readonly plan?: string | undefined
  /**
   * The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as
   * IPv4.
   */
  readonly ip: string
  /**
   * The claims of the token that limits read; an empty list for those that no limit can compare.
   */
  readonly claims?: Readonly<Record<string, Claim | readonly Claim[]>> | undefined
}

/** Facts of a request, besides its caller, that limits read. The gateway's exchange has them. */
export interface Facts {
  readonly method: string
  readonly params: Params
  /**
   * Returns the values of a header field by its lower-case name, one for each line; undefined if it
   * is absent, or must not be believed.
   */
  field(name: string): readonly string[] | undefined
  readonly head: { readonly authorization: readonly string[] }
  readonly route?: Pick<Route, 'match'> | undefined
}

export const NO_FACTS: Facts = {
  method: '',
  params: {},
  field: () => undefined,
  head: { authorization: [] },
}

/**
 * Returns the SHA-256 of the access token, if any; of a JWT without its signature, as ECDSA has two
 * that are valid for each.
 */
export function tokenHash({ head }: Facts): string | undefined {
  const [credentials] = head.authorization
  if (credentials === undefined) return undefined
  // A token contains no space, and any number of spaces may precede it.
  const token = credentials.slice(credentials.lastIndexOf(' ') + 1)
  // The header of a JWT may begin with white space, and so not with `eyJ`.
  const [header = '', payload, ...others] = token.split('.', 4)
  const isJwt = others.length === 1 && parseObject(Buffer.from(header, 'base64url')) !== undefined
  return hash('sha256', isJwt ? `${header}.${payload}` : token, 'base64url')
}
