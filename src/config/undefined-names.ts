import { isObject, type JsonObject } from '../runtime/json.ts'
import { nearest, type Path } from './yaml/issue.ts'

const objectsIn = (list: unknown): readonly [number, JsonObject][] =>
  Array.isArray(list) ? [...list.entries()].filter(([, item]) => isObject(item)) : []

/**
 * Yields the undefined upstreams and limits that routes, clients and operators of a file name,
 * which may have other mistakes.
 */
export function* undefinedNames({ upstreams = {}, limits = {}, routes, clients, admin }: JsonObject) {
  function* check(kind: 'upstream' | 'limit', name: unknown, path: Path, key?: true) {
    const defined = kind === 'limit' ? limits : upstreams
    if (typeof name !== 'string' || !isObject(defined) || Object.hasOwn(defined, name)) return
    const similar = nearest(name, Object.keys(defined))
    const remedy = similar ? `did you mean "${similar}"?` : `define it under "${kind}s"`
    yield { path, message: `there is no such ${kind}; ${remedy}`, key }
  }
  for (const [name, limit] of isObject(limits) ? Object.entries(limits) : [])
    if (isObject(limit)) yield* check('limit', limit['counts'], ['limits', name, 'counts'])
  for (const [i, { upstream, limits: names }] of objectsIn(routes)) {
    yield* check('upstream', upstream, ['routes', i, 'upstream'])
    for (const [j, name] of Array.isArray(names) ? names.entries() : [])
      yield* check('limit', name, ['routes', i, 'limits', j])
  }
  for (const [i, { limits: own }] of objectsIn(clients))
    for (const name of isObject(own) ? Object.keys(own) : [])
      yield* check('limit', name, ['clients', i, 'limits', name], true)
  for (const [i, { may }] of objectsIn(isObject(admin) ? admin['tokens'] : []))
    for (const [j, name] of Array.isArray(may) ? may.entries() : [])
      yield* check('limit', name, ['admin', 'tokens', i, 'may', j])
}
