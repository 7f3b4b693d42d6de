import { added, NONE } from '../runtime/short-list.ts'
import type { Pattern } from './pattern.ts'

/** A path at a host, to find in an index. */
export interface AskedPath {
  /** The host in lower case; undefined finds only patterns without a host. */
  readonly host: string | undefined
  /** Segments in folded case, as many as the longest pattern has; undefined for one of unknown text. */
  readonly segments: readonly (string | undefined)[]
  /** Number of segments of the path; Infinity for one that may have any number from `segments.length` on. */
  readonly length: number
}

/** Patterns in the order of the file, found by the segments of a path. */
export interface RouteIndex<R> {
  /** Returns the first pattern that matches the host and the path, and that `accepts` returns true for. */
  first<A extends AskedPath>(asked: A, accepts: (route: R, asked: A) => boolean): R | undefined
  /** Returns all patterns that match the host and the path, in no order. */
  all(asked: AskedPath): readonly R[]
}

interface Entry<R> {
  readonly route: R
  readonly position: number
}

/** A place in a tree of paths: its depth is the number of segments before it. */
interface Place<R> {
  /** The lowest position of the entries here and below. */
  readonly first: number
  /** The places after literals; undefined without one. */
  literals: Map<string, Place<R>> | undefined
  /** The place after a segment that is a parameter, of any name. */
  parameter: Place<R> | undefined
  /** The patterns that end here. */
  whole: Entry<R>[]
  /** The patterns that end here with a `*`. */
  rest: Entry<R>[]
}

/** The patterns that name no host, and have the same `hosts`. */
interface Shared<R> {
  /** Undefined for all hosts. */
  readonly hosts: ReadonlySet<string> | undefined
  readonly root: Place<R>
}

/** The index of no patterns: most routers have no guarded routes, and no teams. */
const EMPTY: RouteIndex<never> = { first: () => undefined, all: () => [] }

/**
 * Creates the index of patterns: a tree of their segments for each host. A lookup follows the
 * literal and the parameter at each segment, and leaves out places that only have later patterns
 * than the one found so far. So its cost depends on the segments of the path, and on the patterns
 * that match it up to the methods, but not on the number of patterns. (find-my-way prefers literals
 * to parameters, in any order; the order of the file decides here.)
 */
export function createRouteIndex<R extends Pattern>(routes: readonly R[]): RouteIndex<R> {
  if (routes.length === 0) return EMPTY
  const named = new Map<string, Place<R>>()
  const shared = new Map<Pattern['hosts'], Shared<R>>()

  function rootOf({ host, hosts }: R, position: number): Place<R> {
    const own = host === undefined ? shared.get(hosts)?.root : named.get(host)
    if (own !== undefined) return own
    const root = createPlace<R>(position)
    if (host !== undefined) named.set(host, root)
    else shared.set(hosts, { hosts: hosts && new Set(hosts), root })
    return root
  }

  for (const [position, route] of routes.entries()) {
    let place = rootOf(route, position)
    for (const segment of route.segments) place = placeAfter(place, segment, position)
    const entry = { route, position }
    if (route.rest) place.rest = added(place.rest, entry)
    else place.whole = added(place.whole, entry)
  }

  const unnamed = [...shared.values()]
  const matchesHost = ({ hosts }: Shared<R>, host: string | undefined): boolean =>
    hosts === undefined || (host !== undefined && hosts.has(host))
  const rootAt = (host: string | undefined): Place<R> | undefined =>
    host === undefined ? undefined : named.get(host)

  return {
    first(asked, accepts) {
      const own = rootAt(asked.host)
      let found = own && firstIn(own, 0, asked, accepts, undefined)
      for (const one of unnamed)
        if (matchesHost(one, asked.host)) found = firstIn(one.root, 0, asked, accepts, found)
      return found?.route
    },
    all(asked) {
      const found: R[] = []
      const own = rootAt(asked.host)
      if (own !== undefined) collect(own, 0, asked, found)
      for (const one of unnamed) if (matchesHost(one, asked.host)) collect(one.root, 0, asked, found)
      return found
    },
  }
}

/** Creates a place. Its lists and its map are made when they are needed: most places have one or none. */
const createPlace = <R>(first: number): Place<R> => ({
  first,
  literals: undefined,
  parameter: undefined,
  whole: NONE,
  rest: NONE,
})

/** Returns the place after a segment, which it adds for the pattern at `position` if there is none. */
function placeAfter<R>(place: Place<R>, segment: Pattern['segments'][number], position: number): Place<R> {
  if ('param' in segment) return (place.parameter ??= createPlace(position))
  place.literals ??= new Map()
  const known = place.literals.get(segment.literal)
  if (known !== undefined) return known
  const next = createPlace<R>(position)
  place.literals.set(segment.literal, next)
  return next
}

/** Returns the first entry at or below a place that matches; `found` if no earlier one does. */
function firstIn<R, A extends AskedPath>(
  place: Place<R>,
  depth: number,
  asked: A,
  accepts: (route: R, asked: A) => boolean,
  found: Entry<R> | undefined,
): Entry<R> | undefined {
  if (found !== undefined && found.position < place.first) return found
  let first = earlierOf(place.rest, asked, accepts, found)
  if (depth === asked.length) first = earlierOf(place.whole, asked, accepts, first)
  if (depth >= asked.segments.length) return first
  const next = literalPlace(place, asked.segments[depth])
  if (next !== undefined) first = firstIn(next, depth + 1, asked, accepts, first)
  if (place.parameter !== undefined) first = firstIn(place.parameter, depth + 1, asked, accepts, first)
  return first
}

const literalPlace = <R>({ literals }: Place<R>, segment: string | undefined): Place<R> | undefined =>
  segment === undefined ? undefined : literals?.get(segment)

/** Returns the first of `entries` that is accepted; `found` if that is earlier. */
function earlierOf<R, A extends AskedPath>(
  entries: readonly Entry<R>[],
  asked: A,
  accepts: (route: R, asked: A) => boolean,
  found: Entry<R> | undefined,
): Entry<R> | undefined {
  for (const entry of entries) {
    if (found !== undefined && found.position < entry.position) return found
    if (accepts(entry.route, asked)) return entry
  }
  return found
}

/** Adds the patterns at and below a place that match. */
function collect<R>(place: Place<R>, depth: number, asked: AskedPath, found: R[]): void {
  for (const { route } of place.rest) found.push(route)
  if (depth === asked.length) for (const { route } of place.whole) found.push(route)
  if (depth >= asked.segments.length) return
  const next = literalPlace(place, asked.segments[depth])
  if (next !== undefined) collect(next, depth + 1, asked, found)
  if (place.parameter !== undefined) collect(place.parameter, depth + 1, asked, found)
}
