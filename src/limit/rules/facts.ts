// oxlint-disable-next-line no-restricted-imports -- a hash is pure
import { hash } from 'node:crypto'
import type { Params, Route } from '../../downstream/router.ts'

type Claim = string | number | boolean

/** The verified identity of a request's sender. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, named by `createQualifier` of authenticate/token/bearer.ts. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
  /** The claims of the token that limits read; an empty list for those that no limit can compare. */
  readonly claims?: Readonly<Record<string, Claim | readonly Claim[]>> | undefined
}

/** Facts of a request, besides its caller, that limits read. The gateway's exchange has them. */
export interface Facts {
  readonly method: string
  readonly params: Params
  readonly request: { readonly rawHeaders: readonly string[] }
  readonly head: { readonly authorization: readonly string[] }
  readonly route?: Pick<Route, 'match'> | undefined
}

export const NO_FACTS: Facts = {
  method: '',
  params: {},
  request: { rawHeaders: [] },
  head: { authorization: [] },
}

/** Returns the values of a header field by its lower-case name; undefined if it is absent, or `Connection` removes it from the request. */
export function headerValues({ request: { rawHeaders } }: Facts, name: string) {
  let values: string[] | undefined
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const field = rawHeaders[i]!.toLowerCase()
    if (field === name) (values ??= []).push(rawHeaders[i + 1]!)
    else if (field === 'connection' && optionsOf(rawHeaders[i + 1]!).includes(name)) return undefined
  }
  return values
}

const optionsOf = (connection: string): readonly string[] =>
  connection
    .toLowerCase()
    .split(',')
    .map((option) => option.trim())

/** Returns the SHA-256 of the access token, if any; of a JWT without its signature, as ECDSA has two that are valid for each. */
export function tokenHash({ head }: Facts): string | undefined {
  const [credentials] = head.authorization
  if (credentials === undefined) return undefined
  // A token contains no space, and any number of spaces may precede it.
  const token = credentials.slice(credentials.lastIndexOf(' ') + 1)
  const [signed] = /^eyJ[^.]*\.[^.]*(?=\.[^.]*$)/.exec(token) ?? [token]
  return hash('sha256', signed, 'base64url')
}
