import { badRequest, Refusal } from '../errors.ts'
import { isGuarded, type Match, type Route, type Router } from './router.ts'
import { canonicalPath, foldCase, hasDotSegment, loggablePath, segmentsOf, type Target } from './target.ts'

/**
 * Maximum readings of a path. Each is computed in time linear in its length; real paths have at
 * most a dozen.
 */
const MAX_READINGS = 40
/** Maximum length of a reading in an error text, in characters. */
const MAX_SHOWN = 100

/** A script, after which CGI, PHP and ASP.NET take the rest of the path as an argument. */
const SCRIPT = /\.(?:php\d?|phtml|aspx?|ashx|asmx|svc|f?cgi|pl|py|cfm)$/i
/** The start of a session id of ASP.NET without a cookie, which ends in `))`, such as `(S(…))`. */
const SESSION = /\([a-z]\(/i

/**
 * What servers do to a canonical path, each besides what the others do. A step returns the path
 * itself if it does not apply, and undefined if its result is not a path. `named`: see `readingsOf`.
 */
type Step = (path: string, named: ReadonlySet<string>) => string | undefined

const STEPS: readonly Step[] = [
  // Decodes once more.
  (path) =>
    /%25[0-9A-F]{2}/i.test(path) ? canonicalPath(path.replaceAll(/%25(?=[0-9A-F]{2})/gi, '%')) : path,
  // Decodes an escaped slash, or takes a backslash for one.
  (path) => path.replaceAll('%2F', '/'),
  (path) => path.replaceAll('%5C', '/'),
  // Drops path parameters, before or after decoding, or takes `;` for the start of a query.
  (path) => path.replaceAll(/;[^/]*/g, ''),
  (path) => path.replaceAll(/(?:;|%3B)[^/]*/g, ''),
  (path) => path.split(';', 1)[0]!,
  // Merges slashes, all or those at the start; takes what follows two at the start for a host.
  (path) => path.replaceAll(/\/{2,}/g, '/'),
  (path) => path.replace(/^\/{2,}/, '/'),
  (path) => path.replace(/^\/\/[^/]*/, '') || '/',
  // ASP.NET drops sessions at any place.
  dropSessions,
  // Frameworks start after a script, or leave it out. A server runs it, with the rest as an argument.
  (path, named) => atScript(path, named, (_, after) => `/${after.join('/')}`),
  (path, named) => atScript(path, named, (before, after) => `/${[...before, ...after].join('/')}`),
  (path, named) => atScript(path, named, (before, _, script) => `/${[...before, script].join('/')}`),
]

/**
 * Returns the canonical paths that servers may read in a target, first its own; a refusal if one of
 * them holds a dot segment or a control character, or if there are too many. `named` are the
 * segments, in folded case, that the route itself names: its operator knows what the backend does
 * with such a script.
 */
export function readingsOf(target: Target, named: ReadonlySet<string>): readonly string[] | Refusal {
  const readings = new Set([target.path])
  const inQuery = pathsInQuery(target)
  // The loop also visits what is added meanwhile.
  for (const reading of readings) {
    if (readings.size > MAX_READINGS || hasDotSegment(reading)) return unreadable()
    const next = STEPS.map((step) => step(reading, named))
    if (inQuery.length > 0 && isEmptyOrScript(reading)) next.push(...inQuery)
    for (const path of next) {
      if (path === undefined) return unreadable()
      readings.add(path)
    }
  }
  return [...readings]
}

/** Returns what PHP frameworks use in place of an empty path, or of one that ends in a script. */
function pathsInQuery({ query }: Target): readonly (string | undefined)[] {
  if (!query.startsWith('?/')) return []
  const [whole = ''] = query.slice(1).split('?', 1)
  const [first = ''] = whole.split('&', 1)
  return [canonicalPath(whole), canonicalPath(first)]
}

const isEmptyOrScript = (path: string) => /^\/+$/.test(path) || SCRIPT.test(path.replace(/\/$/, ''))

const unreadable = () =>
  badRequest(
    'Servers could read a dot segment or a control character in the path, or read it in too many ways.',
  )

function dropSessions(path: string): string {
  let kept = ''
  let rest = path
  for (;;) {
    const start = rest.search(SESSION)
    const end = start === -1 ? -1 : rest.indexOf('))', start)
    if (end === -1) return kept + rest
    kept += rest.slice(0, start)
    rest = rest.slice(end + 2)
  }
}

/** Splits a path at its first script that is followed by something, and joins the parts. */
function atScript(
  path: string,
  named: ReadonlySet<string>,
  join: (before: readonly string[], after: readonly string[], script: string) => string,
): string {
  const segments = path.slice(1).split('/')
  const last = segments.length - 1
  const at = segments.findIndex((one, i) => i < last && SCRIPT.test(one) && !isNamed(one, named))
  return at === -1 ? path : join(segments.slice(0, at), segments.slice(at + 1), segments[at]!)
}

const isNamed = (segment: string, named: ReadonlySet<string>) =>
  named.size > 0 && named.has(foldCase(segment))

/** A path that a server may read, and the match of it. */
export interface Reading<R> {
  readonly path: string
  readonly found: Match<R>
}

/**
 * Returns what each reading of a target leads to, first what its canonical path does; a refusal if
 * it has one that no server may get.
 */
export function matchReadings<R extends Route>(
  match: Router<R>,
  method: string,
  target: Target,
): readonly Reading<R>[] | Refusal {
  const found = match(method, target.host, target.segments)
  const readings = readingsOf(target, literalsOf(found))
  if (readings instanceof Refusal) return readings
  const [, ...others] = readings
  return [
    { path: target.path, found },
    ...others.map((path) => ({ path, found: match(method, target.host, segmentsOf(path)) })),
  ]
}

function literalsOf(found: Match<Route>): ReadonlySet<string> {
  const segments = found !== undefined && 'route' in found ? found.route.segments : []
  return new Set(segments.flatMap((segment) => ('literal' in segment ? segment.literal : [])))
}

/**
 * Refuses a target whose readings disagree about what decides: the route, the ids that its limits
 * count by, or whether the path is guarded. A guarded path has only one reading.
 */
export function refuseReadings<R extends Route>(readings: readonly Reading<R>[]): Refusal | undefined {
  const [own, ...others] = readings
  if (own === undefined) return undefined
  const other = others.find((one) => !isSame(own.found, one.found) || isGuardedMatch(one.found))
  if (other === undefined) return undefined
  const [ownMatch, otherMatch] = [describeMatch(own.found), describeMatch(other.found)]
  const differs =
    ownMatch === otherMatch && !isGuardedMatch(own.found) ? `${otherMatch}, another id` : otherMatch
  const ways = `"${shown(own.path)}" (${ownMatch}) or as "${shown(other.path)}" (${differs})`
  return badRequest(`Servers could read the path as ${ways}; send one with a single reading.`)
}

function isSame<R extends Route>(one: Match<R>, other: Match<R>): boolean {
  if (one === undefined || other === undefined) return one === other
  // Neither is forwarded.
  if (!('route' in one) || !('route' in other)) return !('route' in one) && !('route' in other)
  const { route } = one
  if (route !== other.route) return false
  return (route.counted ?? []).every((name) => foldCase(one.params[name]!) === foldCase(other.params[name]!))
}

const isGuardedMatch = (found: Match<Route>) =>
  found !== undefined && 'route' in found && isGuarded(found.route)

/** Describes what a reading leads to, for the caller and for `explain`. */
export function describeMatch(found: Match<Route>): string {
  if (found === undefined) return 'no route'
  return 'route' in found ? `the route "${found.route.match}"` : 'a method that its route does not allow'
}

function shown(path: string): string {
  const loggable = loggablePath(path)
  return loggable.length > MAX_SHOWN ? `${loggable.slice(0, MAX_SHOWN)}…` : loggable
}
