import { crossCheck } from '../checks.ts'
import type { Settings } from '../schema.ts'
import type { Issue, LocatedIssue, Path } from '../yaml/issue.ts'
import { conflictsOf, placeOf } from './ownership.ts'
import { type Addition, scoped } from './scope.ts'
import type { TeamFile } from './team-file.ts'

/** A team whose file is in force, in this version or in the last valid one. */
interface Served {
  readonly file: TeamFile
  readonly isPrevious: boolean
  readonly addition: Addition
}

/** The versions of teams' files that are in force together. */
export interface Chosen {
  /** The main file with what the teams add. */
  readonly settings: Settings
  readonly served: readonly Served[]
  /** Files without a version that is valid. */
  readonly unserved: readonly TeamFile[]
  /** The mistakes of files that are left out, in the order of their names. */
  readonly problems: readonly LocatedIssue[]
  /** Returns the file with a path of `settings`, and its place there; undefined for the main file. */
  placeOf(path: Path): { readonly file: TeamFile; readonly path: Path } | undefined
}

type Refused = ReadonlyMap<TeamFile, readonly LocatedIssue[]>

/**
 * Chooses the versions of the teams' files that are valid together with the main file: the current
 * one, or else the last valid one, if it is known by its path. Those in force come first, so that a new file, or
 * a new claim, is refused rather than that of a team that serves. `refused` are versions with
 * mistakes that were found later, and those mistakes.
 */
export function chooseTeams(
  main: Settings,
  files: readonly TeamFile[],
  lastValid: ReadonlyMap<string, TeamFile>,
  refused: Refused,
): Chosen {
  const served: Served[] = []
  const unserved: TeamFile[] = []
  const problems = new Map<string, readonly LocatedIssue[]>()
  const contested = new Set(files.filter((file) => !keepsClaim(file, lastValid)))

  /** Adds a version of a file to those that are served, or returns its mistakes. */
  function add(file: TeamFile, isPrevious: boolean): readonly LocatedIssue[] {
    const { settings, name } = file
    if (settings === undefined) return file.problems
    const known = refused.get(file)
    if (known !== undefined) return known
    const isContested = !isPrevious && contested.has(file)
    const rivals = isContested ? [...contested].filter((other) => other !== file) : []
    const taken = [...served.map(({ file }) => file), ...rivals]
    const conflict = conflictIn(file, taken)
    if (conflict !== undefined) return file.locate([conflict])
    const addition = scoped(settings, name, file.file, main)
    const found = [...mistakesWith(main, served, addition)]
    if (found.length > 0) return file.locate(found)
    served.push({ file, isPrevious, addition })
    return []
  }

  for (const file of inOrder(files, lastValid)) {
    const mistakes = add(file, false)
    if (mistakes.length === 0) continue
    problems.set(file.path, mistakes)
    const previous = lastValid.get(file.path)
    if (previous === undefined || add(previous, true).length > 0) unserved.push(file)
  }
  const byName = served.toSorted((a, b) => (a.file.path < b.file.path ? -1 : 1))
  return {
    settings: joined(main, byName),
    served: byName,
    unserved,
    problems: files.flatMap(({ path }) => problems.get(path) ?? []),
    placeOf: (path) => placeIn(main, byName, path),
  }
}

/** True if a file claims what its last valid version does. */
function keepsClaim({ path, owner }: TeamFile, lastValid: ReadonlyMap<string, TeamFile>): boolean {
  const before = lastValid.get(path)?.owner
  return before !== undefined && owner?.match === before.match
}

/** Sorts files: those that keep their claim, then others of known teams, then new ones, each by name. */
function inOrder(files: readonly TeamFile[], lastValid: ReadonlyMap<string, TeamFile>): readonly TeamFile[] {
  const rank = (file: TeamFile): number => {
    if (keepsClaim(file, lastValid)) return 0
    return lastValid.has(file.path) ? 1 : 2
  }
  return files.toSorted((a, b) => rank(a) - rank(b))
}

/** Returns the conflict of a file with the name or the claim of another. */
function conflictIn(file: TeamFile, others: readonly TeamFile[]): Issue | undefined {
  const namesake = others.find(({ name }) => name === file.name)
  if (namesake !== undefined) {
    const message = `the team "${file.name}" has another file, ${namesake.file}; rename one of them`
    return { path: [], message }
  }
  const owners = others.flatMap((other) => (other.owner === undefined ? [] : { ...other.owner, other }))
  const [rival] = conflictsOf(file.owner!.owned, owners)
  if (rival === undefined) return undefined
  const place = placeOf(rival.other.settings ?? rival.other.written ?? {})
  const [located] = rival.other.locate([{ path: [place], message: '' }])
  const message = `overlaps with "${rival.match}", which ${located?.where} owns; write another in one of the files`
  return { path: [placeOf(file.settings!)], message }
}

/** Returns the main file's settings with those of teams after them. */
function joined(main: Settings, served: readonly Pick<Served, 'addition'>[]): Settings {
  const additions = served.map(({ addition }) => addition)
  return {
    ...main,
    routes: [...main.routes, ...additions.flatMap(({ routes }) => routes)],
    limits: [...main.limits, ...additions.flatMap(({ limits }) => limits)],
    upstreams: [...main.upstreams, ...additions.flatMap(({ upstreams }) => upstreams)],
  }
}

/**
 * Yields the mistakes that an addition makes in a configuration that is valid without it, at their
 * places in the team's file.
 */
function* mistakesWith(main: Settings, served: readonly Served[], addition: Addition): Generator<Issue> {
  // Clients may have limits of the main file only.
  const shared = { ...main, clients: [] }
  const added = [...served, { addition }]
  for (const issue of crossCheck(joined(shared, added))) {
    const place = findPlace(shared, added, issue.path)
    if (place !== undefined && place.index === served.length) yield { ...issue, path: place.path }
    else yield { path: [], message: `makes a mistake in another file: ${issue.message}` }
  }
}

function placeIn(main: Settings, served: readonly Served[], path: Path) {
  const place = findPlace(main, served, path)
  return place && { file: served[place.index]!.file, path: place.path }
}

/** Returns the index of the addition that a path of the joined settings is in, and its path there. */
function findPlace(main: Settings, added: readonly Pick<Served, 'addition'>[], path: Path) {
  const [section, item, ...rest] = path
  if (section !== 'routes' && section !== 'limits' && section !== 'upstreams') return undefined
  if (section === 'routes') {
    let first = main.routes.length
    for (const [index, { addition }] of added.entries()) {
      const i = Number(item) - first
      if (i >= 0 && i < addition.routes.length) return { index, path: [section, i, ...rest] }
      first += addition.routes.length
    }
    return undefined
  }
  const index = added.findIndex(({ addition }) => addition[section].some(({ name }) => name === item))
  const own = String(item).replace(/^[^/]*\//, '')
  return index === -1 ? undefined : { index, path: [section, own, ...rest] }
}
