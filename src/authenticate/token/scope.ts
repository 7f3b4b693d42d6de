import { Refusal } from '../../errors.ts'
import type { Identity } from './access-token.ts'

/** 403 `insufficient_scope`, with what is needed, unless a token has every one of these scopes (RFC 6750 section 3.1). */
export function requireScope(identity: Identity, scopes: readonly string[]): Refusal | undefined {
  if (scopes.length === 0) return undefined
  // RFC 6749 section 3.3: case-sensitive, in any order, with a space between.
  const held = identity.scope?.split(' ') ?? []
  if (scopes.every((scope) => held.includes(scope))) return undefined
  const scheme = identity.confirmation?.jkt === undefined ? 'Bearer' : 'DPoP'
  const description = 'The access token lacks a scope that is needed here.'
  return new Refusal('Forbidden', description, {
    oauthError: 'insufficient_scope',
    headers: {
      'WWW-Authenticate': `${scheme} error="insufficient_scope", error_description="${description}", scope="${scopes.join(' ')}"`,
    },
  })
}
