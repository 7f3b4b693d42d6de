import { METHODS, type Pattern } from '../downstream/pattern.ts'
import { type AskedPath, createRouteIndex, type RouteIndex } from '../downstream/route-index.ts'
import { groupBy } from '../runtime/grouping.ts'
import type { Settings } from './schema.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

type Route = Settings['routes'][number]

/** All requests of a pattern at a host, as the index is asked for what matches them all. */
interface AskedPattern extends AskedPath {
  readonly methods: ReadonlySet<string>
}

/** Yields routes whose requests all match earlier routes of the same file. */
export function* unreachableRoutes({ listen, routes }: Settings): Generator<Issue> {
  const { hosts } = listen
  const places = new Map(routes.map((route, i): [Route, number] => [{ ...route, hosts }, i]))
  for (const file of groupBy([...places.keys()], ({ team }) => team).values()) {
    const index = createRouteIndex(file)
    const placesInFile = new Map(file.map((route, i) => [route, i]))
    for (const route of file) {
      const covering = coveringRoutes(route, index, hosts)
      if (covering === undefined) continue
      const names = covering.map((one) => `"${one.match}" (routes[${placesInFile.get(one)}])`)
      yield issueAt(
        ['routes', places.get(route)!, 'match'],
        `never matches: its requests match ${names.join(' and ')} before; put it first or remove it`,
      )
    }
  }
}

/** Returns the routes before that match all requests of a route; undefined if one reaches it. */
function coveringRoutes(
  route: Route,
  index: RouteIndex<Route>,
  listed: readonly string[] | undefined,
): readonly Route[] | undefined {
  const { methods = METHODS, segments, rest } = route
  const asked = {
    methods,
    segments: segments.map((segment) => ('literal' in segment ? segment.literal : undefined)),
    length: rest ? Infinity : segments.length,
  }
  const covering = new Set<Route>()
  for (const host of route.host === undefined ? (listed ?? [undefined]) : [route.host]) {
    // At the latest, a route matches its own requests.
    const first = index.first({ ...asked, host }, allowsMethods)!
    if (first === route) return undefined
    covering.add(first)
  }
  return [...covering]
}

const allowsMethods = ({ methods: allowed = METHODS }: Pattern, { methods }: AskedPattern): boolean =>
  [...methods].every((method) => allowed.has(method))
