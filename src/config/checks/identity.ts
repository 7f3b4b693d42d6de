import type { Pattern } from '../../downstream/router.ts'
import type { Outline, OutlinedRoute } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'

/** Issuers that stand twice, and a second one with an introspection endpoint. */
export function* issuers({ tokens }: Outline): Generator<Mistake> {
  const first = new Map<string, number>()
  let introspecting: number | undefined
  for (const [i, { issuer, introspection }] of (tokens ?? []).entries()) {
    const before = issuer === undefined ? undefined : first.get(issuer)
    if (before !== undefined) {
      const message = `stands twice, first in tokens[${before}]; make one of the two`
      yield { path: ['tokens', i, 'issuer'], message }
    } else if (issuer !== undefined) first.set(issuer, i)
    if (introspection === undefined) continue
    if (introspecting !== undefined) {
      const message = `stands in tokens[${introspecting}] too, and opaque tokens do not tell whose they are; take one of the two out`
      yield { path: ['tokens', i, 'introspection'], message, key: true }
    } else introspecting = i
  }
}

/** Sections that a route needs and that are not there. */
export function* missing({ tokens, par, routes }: Outline): Generator<Mistake> {
  const asking = (how: string) => routes.findIndex(({ authenticate }) => authenticate === how)
  const [bearer, guarded] = [asking('bearer'), asking('par')]
  if (tokens === undefined && bearer !== -1) {
    const message = `is missing; routes[${bearer}] says "authenticate: bearer", so write whose tokens are taken: issuer and audience`
    yield { path: ['tokens'], message }
  }
  if (par === undefined && guarded !== -1) {
    const message = `is missing; routes[${guarded}] says "authenticate: par", so write the issuer for which assertions are made`
    yield { path: ['par'], message }
  }
}

/** What goes with one kind of authentication alone. */
export function* authenticationOf(
  { authenticate, scope, limits, maxBody, match }: OutlinedRoute,
  i: number,
  pattern: Pattern | undefined,
): Generator<Mistake> {
  const at = (key: string) => ['routes', i, key]
  if (scope !== undefined && authenticate !== undefined && authenticate !== 'bearer') {
    const message = 'goes with "authenticate: bearer" alone, since only tokens have scopes; take it out'
    yield { path: at('scope'), message, key: true }
  }
  if (authenticate !== 'par') return
  if (pattern && !(pattern.methods?.size === 1 && pattern.methods.has('POST'))) {
    const path = match!.replace(/^[A-Za-z,]+ +/, '')
    const message = `must take POST alone, because a pushed authorisation request is one; write "POST ${path}"`
    yield { path: at('match'), message }
  }
  if (limits.length > 0) {
    const message = 'must be left out beside "authenticate: par": identity traffic is never limited'
    yield { path: at('limits'), message, key: true }
  }
  if (maxBody !== undefined) {
    const message = 'must be left out beside "authenticate: par"; write par.maxBody'
    yield { path: at('maxBody'), message, key: true }
  }
}
