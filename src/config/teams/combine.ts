import { compile } from '../compile.ts'
import type { Compiled } from '../config.ts'
import type { ReadFile } from '../file-stamp.ts'
import { ConfigError, type Issue, type LocatedIssue } from '../yaml/issue.ts'
import type { TeamText } from '../texts.ts'
import { type Chosen, chooseTeams } from './choose.ts'
import { type Team, teamNameOf, type TeamState } from './team.ts'
import { type MainFile, type ReadTeam, readTeamFile, type TeamFile } from './team-file.ts'

interface Options {
  /** The last valid versions of the files; undefined if a mistake in any of them rejects the configuration. */
  readonly lastValid: readonly TeamText[] | undefined
  /** True if a team without a valid version rejects the configuration although it had one. */
  readonly isReload: boolean
  /** The upstreams in force at a reload, with the texts of their certificates. */
  readonly upstreams: Compiled['upstreams']
  readonly directory: string
  /** The files that the settings were read from. */
  readonly sources: readonly ReadFile[]
}

/** A main file with the teams that it is served with. */
export interface Combined {
  readonly compiled: Compiled
  readonly chosen: Chosen
  /** The files that the settings name. */
  readonly files: readonly ReadFile[]
  /** The number of files in each state. */
  readonly states: Readonly<Record<TeamState, number>>
  /** Variables and files that the settings and the teams' files name and that are not here, with `offline`. */
  readonly notes: readonly LocatedIssue[]
  locate(issues: Iterable<Issue>): readonly LocatedIssue[]
}

/**
 * Compiles the main file with the teams' files. Leaves out files with mistakes, if `lastValid` is
 * given. Throws a `ConfigError` for other mistakes.
 */
export async function combine(
  texts: readonly ReadTeam[],
  given: Omit<MainFile, 'teams'>,
  options: Options,
): Promise<Combined> {
  const { lastValid, isReload, upstreams, directory, sources } = options
  const main = { ...given, teams: namesOf(texts) }
  const files = texts.map((text) => readTeamFile(text, main))
  // A new file must not make the last valid version of another invalid by its name.
  const before = { ...given, teams: namesOf(lastValid ?? []) }
  const previous = new Map((lastValid ?? []).map((text) => [text.path, readTeamFile(text, before)]))
  const refused = new Map<TeamFile, readonly LocatedIssue[]>()
  const named: ReadFile[] = []
  for (;;) {
    const chosen = chooseTeams(main.settings, files, previous, refused)
    const { settings, served, unserved, problems } = chosen
    const isRejected = lastValid === undefined ? problems.length > 0 : unserved.some(isFatal)
    if (isRejected) throw new ConfigError(problems)
    assertRoutes(chosen, main)
    const teams = [
      ...served.map(({ file, isPrevious }) => teamOf(file, isPrevious ? 'previous' : 'valid')),
      ...unserved.map(withClaim).flatMap((file) => (file.owner ? teamOf(file, 'invalid') : [])),
    ]
    const tlsInForce = tlsOfPrevious(chosen, upstreams)
    const compilation = await compile(settings, {
      directory,
      offline: main.offline,
      sources,
      teams,
      tlsInForce,
    })
    const { compiled, mistakes } = compilation
    // Also those of an attempt that failed: the mistake may be in one of them.
    named.push(...compilation.files)
    const locate = (issues: Iterable<Issue>) => locateIn(chosen, main, issues)
    if (mistakes.length === 0) {
      const ofTeams = served.flatMap(({ file }) => file.notes)
      const notes = [...locate(compilation.notes), ...ofTeams]
      return { compiled, chosen, files: named, states: countStates(chosen), notes, locate }
    }
    const places = mistakes.map(({ path }) => chosen.placeOf(path)?.file)
    if (lastValid === undefined || places.includes(undefined)) throw new ConfigError(locate(mistakes))
    for (const file of new Set(places)) {
      const own = mistakes.filter((_, i) => places[i] === file)
      refused.set(file!, locate(own))
    }
  }

  /** A file with a known claim, that of its last valid version if it has none. */
  function withClaim(file: TeamFile): TeamFile {
    return { ...file, owner: file.owner ?? previous.get(file.path)?.owner }
  }
  /** True for a team that was served, or whose requests could reach routes of the main file. */
  function isFatal(file: TeamFile): boolean {
    return isReload ? previous.has(file.path) : withClaim(file).owner === undefined
  }
}

/** Returns the certificates in force, by the names of upstreams, of teams whose last valid version is used. */
function tlsOfPrevious({ served }: Chosen, upstreams: Compiled['upstreams']) {
  const previous = served.filter(({ isPrevious }) => isPrevious).flatMap(({ addition }) => addition.upstreams)
  const names = new Set(previous.map(({ name }) => name))
  const found = upstreams.flatMap(({ name, tls }) =>
    tls !== undefined && names.has(name) ? [[name, tls] as const] : [],
  )
  return new Map(found)
}

const namesOf = (teams: readonly { readonly path: string }[]): readonly string[] =>
  teams.map(({ path }) => teamNameOf(path))

function countStates({ served, unserved }: Chosen): Combined['states'] {
  const previous = served.filter(({ isPrevious }) => isPrevious).length
  return { valid: served.length - previous, previous, invalid: unserved.length }
}

function teamOf({ file, path, name, owner }: TeamFile, state: TeamState): Team {
  const isServed = state !== 'invalid'
  // The name of a file without a valid version may be that of another.
  return { name: isServed ? name : path, file, state, isServed, ...owner! }
}

function assertRoutes({ served, unserved }: Chosen, { settings, locate }: MainFile): void {
  if (settings.routes.length + served.length + unserved.length > 0) return
  const message = 'matches no file, and the file has no "routes"; write one of them'
  throw new ConfigError(locate([{ path: ['include'], message }]))
}

/** Locates issues of the whole configuration in the files that they are in. */
function locateIn({ placeOf }: Chosen, main: MainFile, issues: Iterable<Issue>): readonly LocatedIssue[] {
  const ofMain: Issue[] = []
  const ofTeams = new Map<TeamFile, Issue[]>()
  for (const issue of issues) {
    const place = placeOf(issue.path)
    const list = place === undefined ? ofMain : (ofTeams.get(place.file) ?? [])
    list.push({ ...issue, path: place?.path ?? issue.path })
    if (place !== undefined) ofTeams.set(place.file, list)
  }
  return [...main.locate(ofMain), ...[...ofTeams].flatMap(([file, own]) => file.locate(own))]
}
