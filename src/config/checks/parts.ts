import { parsePattern } from '../../downstream/router.ts'
import { nearest } from './nearest.ts'
import type { Outline, OutlinedRoute } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'

/** What a key may be made of besides the parameters of a path. */
const OF_CALLER = ['client', 'user', 'ip']

/** Misspelt parts of keys: told where they stand, and not at each route that names their limit. */
export function* parts(file: Outline): Generator<Mistake> {
  for (const [name, { per }] of Object.entries(file.limits ?? {})) {
    for (const [i, part] of per.entries()) {
      const meant = part === undefined ? undefined : meantBy(part, name, file)
      if (meant === undefined) continue
      const message = `no route of this limit has a :${part} in its path; did you mean "${meant}"?`
      yield { path: ['limits', name, 'per', i], message }
    }
  }
}

/** What a part of a limit's keys was probably meant to be that none of the limit's routes has; undefined of a sound one. */
export function meantBy(part: string, limit: string, { routes }: Outline): string | undefined {
  const users = routes.filter(({ limits }) => limits.includes(limit))
  const params = users.flatMap((route) => paramsOf(route) ?? [part])
  const known = [...OF_CALLER, ...params]
  if (users.length === 0 || part.startsWith(':') || known.includes(part)) return undefined
  return nearest(part, known)
}

/** Kinds of parameters that no route has. */
export function* parameters({ parameters: kinds, routes }: Outline): Generator<Mistake> {
  const known = routes.flatMap((route) => paramsOf(route) ?? Object.keys(kinds))
  for (const name of Object.keys(kinds)) {
    if (known.includes(name)) continue
    const meant = nearest(name, known)
    const hint = meant === undefined ? 'take it out' : `did you mean "${meant}"?`
    yield { path: ['parameters', name], message: `no route has a :${name} in its path; ${hint}`, key: true }
  }
}

/** The parameters of a route's path; undefined where its pattern is none. */
function paramsOf({ match = '' }: OutlinedRoute): readonly string[] | undefined {
  const pattern = parsePattern(match)
  if (typeof pattern === 'string') return undefined
  return pattern.segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
}
