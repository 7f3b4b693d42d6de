import { isObject, type JsonObject } from '../runtime/json.ts'
import { nearest, type Path } from './yaml/issue.ts'

const objectsIn = (list: unknown): readonly [number, JsonObject][] =>
  Array.isArray(list) ? [...list.entries()].filter(([, item]) => isObject(item)) : []

/** The upstreams and limits of a file, as written. */
export type DefinedNames = Readonly<Partial<Record<'upstreams' | 'limits', unknown>>>

/** Matches the name of a limit of a team, whose file may be added later. */
const OF_TEAM = /^[a-z][a-z0-9_-]*\/[a-z][a-z0-9_-]*$/

/** Returns the names of the upstreams and limits that a file defines. */
export const namesIn = ({ upstreams, limits }: DefinedNames): readonly string[] =>
  [upstreams, limits].flatMap((defined) => (isObject(defined) ? Object.keys(defined) : []))

const merged = (own: unknown, shared: unknown): unknown =>
  isObject(own) && isObject(shared) ? { ...shared, ...own } : own

/**
 * Yields the undefined upstreams and limits that routes, clients and operators of a file name,
 * which may have other mistakes. Its routes may also name those of `shared`.
 */
export function* undefinedNames(file: JsonObject, shared: DefinedNames = {}) {
  const { upstreams = {}, limits = {}, plans = {}, routes, clients, admin, include } = file
  const usable = {
    upstream: merged(upstreams, shared.upstreams),
    limit: merged(limits, shared.limits),
    ownLimit: limits,
    plan: plans,
  }
  function* check(kind: 'upstream' | 'limit' | 'ownLimit' | 'plan', name: unknown, path: Path, key?: true) {
    const defined = usable[kind]
    const noun = kind === 'ownLimit' ? 'limit' : kind
    if (typeof name !== 'string' || !isObject(defined) || Object.hasOwn(defined, name)) return
    const similar = nearest(name, Object.keys(defined))
    const remedy = similar ? `did you mean "${similar}"?` : `define it under "${noun}s"`
    yield { path, message: `there is no such ${noun}; ${remedy}`, key }
  }
  for (const [name, limit] of isObject(limits) ? Object.entries(limits) : [])
    if (isObject(limit)) yield* check('ownLimit', limit['counts'], ['limits', name, 'counts'])
  for (const [i, { upstream, limits: names }] of objectsIn(routes)) {
    yield* check('upstream', upstream, ['routes', i, 'upstream'])
    for (const [j, name] of Array.isArray(names) ? names.entries() : [])
      yield* check('limit', name, ['routes', i, 'limits', j])
  }
  for (const [plan, numbers] of isObject(plans) ? Object.entries(plans) : [])
    for (const name of isObject(numbers) ? Object.keys(numbers) : [])
      yield* check('ownLimit', name, ['plans', plan, name], true)
  for (const [i, { plan }] of objectsIn(clients)) yield* check('plan', plan, ['clients', i, 'plan'])
  for (const [i, { limits: own }] of objectsIn(clients))
    for (const name of isObject(own) ? Object.keys(own) : [])
      yield* check('ownLimit', name, ['clients', i, 'limits', name], true)
  for (const [i, { may }] of objectsIn(isObject(admin) ? admin['tokens'] : []))
    for (const [j, name] of Array.isArray(may) ? may.entries() : [])
      if (include === undefined || !OF_TEAM.test(String(name)))
        yield* check('ownLimit', name, ['admin', 'tokens', i, 'may', j])
}
