import { badRequest, Refusal } from '../errors.ts'
import { isGuarded, type Match, type Route, type Router } from './router.ts'
import { canonicalPath, foldCase, hasDotSegment, loggablePath, SCRIPT_ENDING } from './target.ts'
import { segmentsOf, type Target } from './target.ts'

/** Maximum readings of a path; real paths have at most a dozen. */
const MAX_READINGS = 24
/**
 * Maximum length of a path with several readings, in characters. With the maximum number of
 * readings, it takes about 2 ms.
 */
const MAX_LENGTH = 2048
/** Maximum length of a reading in an error text, in characters. */
const MAX_SHOWN = 100

const SCRIPT = new RegExp(`${SCRIPT_ENDING}$`, 'i')
const SCRIPT_BEFORE_SLASH = new RegExp(`${SCRIPT_ENDING}/`, 'i')
/** Matches the host that URL parsers read at the start of a path, after any number of slashes (WHATWG URL Standard). */
const AUTHORITY = /^\/{2,}[^/]*/
/** The start of a session id of ASP.NET without a cookie, which ends in `))`, such as `(S(…))`. */
const SESSION = /\([a-z]\(/i

/** Changes that servers make to a canonical path that contains a text. */
interface Step {
  readonly contains: string
  /** Returns the path itself if it does not apply, undefined if the result is not a path. `named`: see `readingsOf`. */
  readonly read: (path: string, named: ReadonlySet<string>) => string | undefined
}

const STEPS: readonly Step[] = [
  // Decodes once more.
  { contains: '%25', read: (path) => canonicalPath(path.replaceAll(/%25(?=[0-9A-F]{2})/gi, '%')) },
  // Decodes an escaped slash, or takes a backslash for one.
  { contains: '%2F', read: (path) => path.replaceAll('%2F', '/') },
  { contains: '%5C', read: (path) => path.replaceAll('%5C', '/') },
  // Decodes the start of a query or fragment for the next server, which ends the path there.
  { contains: '%3F', read: (path) => path.slice(0, path.indexOf('%3F')) || '/' },
  { contains: '%23', read: (path) => path.slice(0, path.indexOf('%23')) },
  // Drops path parameters, before or after decoding, or takes `;` for the start of a query.
  { contains: ';', read: (path) => path.replaceAll(/;[^/]*/g, '') },
  { contains: '%3B', read: (path) => path.replaceAll(/(?:;|%3B)[^/]*/g, '') },
  { contains: ';', read: (path) => path.slice(0, path.indexOf(';')) },
  // Takes what follows slashes at the start for a host, or merges them, all or those at the start.
  { contains: '//', read: (path) => path.replace(AUTHORITY, '') || '/' },
  { contains: '//', read: (path) => path.replaceAll(/\/{2,}/g, '/') },
  { contains: '//', read: (path) => path.replace(/^\/{2,}/, '/') },
  // ASP.NET drops sessions at any place.
  { contains: '))', read: dropSessions },
  // Frameworks start after a script, or leave it out. A server runs it, with the rest as an argument.
  { contains: '.', read: atScript(({ after }) => after) },
  { contains: '.', read: atScript(({ before, after }) => [...before, ...after]) },
  { contains: '.', read: atScript(({ before, script }) => [...before, script]) },
]

/**
 * Returns the canonical paths that servers may read in a target, first its own; a refusal if one of
 * them holds a dot segment or a control character, or if there are too many. `named` are the
 * segments, in folded case, that the route itself names: its operator knows what the backend does
 * with such a script.
 */
export function readingsOf(target: Target, named: ReadonlySet<string>): readonly string[] | Refusal {
  const { path } = target
  if (path.length > MAX_LENGTH) return tooLong()
  const readings = new Set([path])
  const refusal = addReadings(readings, named)
  if (refusal !== undefined) return refusal
  const fromQueries = [...readings].flatMap((reading) => [
    ...readFromQuery(reading, target.query),
    ...readFromEscapedQuery(reading),
  ])
  if (fromQueries.length === 0) return [...readings]
  for (const one of fromQueries) {
    if (one === undefined) return unreadable()
    readings.add(one)
  }
  return addReadings(readings, named) ?? [...readings]
}

/** Adds what servers may read in these paths. */
function addReadings(readings: Set<string>, named: ReadonlySet<string>): Refusal | undefined {
  // The loop also visits what is added meanwhile.
  for (const reading of readings) {
    if (readings.size > MAX_READINGS || hasDotSegment(reading)) return unreadable()
    for (const { contains, read } of STEPS) {
      const one = reading.includes(contains) ? read(reading, named) : reading
      if (one === undefined) return unreadable()
      readings.add(one)
    }
  }
  return undefined
}

const tooLong = () =>
  badRequest(`The path can be read in several ways, and is longer than ${MAX_LENGTH} characters.`)

/**
 * Returns the paths that PHP frameworks read at the start of a query, undefined for what is not a path:
 * as they are, for an application at the root, or one that does not know its folder, and below the
 * folder of the script, or the path, which may be that of a folder.
 */
function readFromQuery(path: string, query: string): readonly (string | undefined)[] {
  if (!query.startsWith('?/')) return []
  const [whole = ''] = query.slice(1).split('?', 1)
  const [first = ''] = whole.split('&', 1)
  const base = path.replace(/\/$/, '')
  const folder = SCRIPT.test(base) ? base.slice(0, base.lastIndexOf('/')) : base
  return [whole, first].flatMap((text) => {
    const one = canonicalPath(text)
    return one === undefined ? [one] : [one, `${folder}${one}`]
  })
}

/** The same for a path whose `%3F` a server decodes for the next one. */
function readFromEscapedQuery(path: string): readonly (string | undefined)[] {
  const start = path.indexOf('%3F/')
  if (start === -1 || start !== path.indexOf('%3F')) return []
  return readFromQuery(path.slice(0, start), path.slice(start).replaceAll('%3F', '?'))
}

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

/** The segments of a path before, at and after its first script that is followed by something. */
interface AtScript {
  readonly before: readonly string[]
  readonly script: string
  readonly after: readonly string[]
}

/** Returns what reads the segments that `keep` returns of a path with a script, and another path as it is. */
function atScript(keep: (parts: AtScript) => readonly string[]): Step['read'] {
  return (path, named) => {
    const parts = splitAtScript(path, named)
    return parts === undefined ? path : `/${keep(parts).join('/')}`
  }
}

function splitAtScript(path: string, named: ReadonlySet<string>): AtScript | undefined {
  if (!SCRIPT_BEFORE_SLASH.test(path)) return undefined
  const segments = path.slice(1).split('/')
  const last = segments.length - 1
  const at = segments.findIndex((one, i) => i < last && SCRIPT.test(one) && !isNamed(one, named))
  if (at === -1) return undefined
  return { before: segments.slice(0, at), script: segments[at]!, after: segments.slice(at + 1) }
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
  return badRequest(`Servers could read the path as ${ways}; send one with a single reading.`, {
    logged: `Servers could read the path in two ways: ${ownMatch}, or ${differs}.`,
  })
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
