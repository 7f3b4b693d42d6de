import type { Pattern } from '../../downstream/pattern.ts'
import type { JsonObject } from '../../runtime/json.ts'
import { unusedParameters } from '../checks.ts'
import { type Unknown, withStandIns } from '../offline.ts'
import { parseSettings } from '../parse.ts'
import { teamSection } from '../sections/team.ts'
import { type DefinedNames, namesIn, undefinedNames } from '../undefined-names.ts'
import { type Settings, settings, type TeamSettings } from '../schema.ts'
import { ConfigError, type Issue, issueAt, type LocatedIssue } from '../yaml/issue.ts'
import type { TeamText } from '../texts.ts'
import { type Env, readSource } from '../yaml/source.ts'
import { shownPath } from './glob.ts'
import { foreignFiles } from './own-files.ts'
import { teamNameOf } from './team.ts'
import { withOwnVariables } from './variables.ts'
import { type Claim, claimIssues, ownedBy, strayRoutes, writeClaim } from './ownership.ts'

/** The text of a team's file, or why it could not be read. */
export interface ReadTeam extends TeamText {
  readonly problem?: LocatedIssue | undefined
}

/** A version of a team's file. */
export interface TeamFile extends TeamText {
  /** The name of the team: that of the file, without its folder and ending. */
  readonly name: string
  /** The path as shown, relative like that of the main file. */
  readonly file: string
  /** The settings as written; undefined if the file is not a mapping in YAML. */
  readonly written: JsonObject | undefined
  /** Undefined if the file has mistakes. */
  readonly settings: TeamSettings | undefined
  /** Claims of the file, also of one with mistakes elsewhere; undefined if that cannot be read. */
  readonly owner: { readonly owned: Pattern; readonly match: string } | undefined
  readonly problems: readonly LocatedIssue[]
  /** Variables and files that it names and that are not here, with `offline`. */
  readonly notes: readonly LocatedIssue[]
  locate(issues: readonly Issue[]): readonly LocatedIssue[]
}

/** Settings of the main file that apply to teams. */
export interface MainFile {
  /** The path as given. */
  readonly file: string
  readonly settings: Settings
  /** Its keys as written, for the names of limits and upstreams. */
  readonly written: DefinedNames
  readonly env: Env
  /** True if variables that are not set are notes, no mistakes. */
  readonly offline: boolean
  /** The names of all teams that have a file. */
  readonly teams: readonly string[]
  locate(issues: readonly Issue[]): readonly LocatedIssue[]
}

/** Keys that only the main file may have. */
const GLOBAL_KEYS: ReadonlySet<string> = new Set(
  Object.keys(settings.in.shape).filter((key) => !(key in teamSection.in.shape)),
)

/** Reads a version of a team's file, and checks it by itself and against the main file. */
export function readTeamFile({ path, text, problem }: ReadTeam, main: MainFile): TeamFile {
  const name = teamNameOf(path)
  const file = shownPath(path, main.file)
  const unread = { path, text, name, file, written: undefined, settings: undefined, owner: undefined }
  const fail = (problems: readonly LocatedIssue[]): TeamFile => ({
    ...unread,
    problems,
    notes: [],
    locate: () => [],
  })
  if (problem !== undefined) return fail([problem])
  if (!/^[a-z][a-z0-9_-]*$/.test(name)) {
    const message = `the file gives the team its name, and "${name}" is not one; write lower-case letters, digits, "-" and "_", a letter first`
    return fail([{ where: file, path: '', message }])
  }
  let source: ReturnType<typeof readSource>
  try {
    source = readSource(text, file)
  } catch (error) {
    if (error instanceof ConfigError) return fail(error.problems)
    throw error
  }
  const mistakes: Issue[] = []
  const unknown: Unknown[] = []
  const texts = withOwnVariables(source.value, name, main, { mistakes, unknown })
  const notes = main.offline ? unknown : []
  if (!main.offline) mistakes.push(...unknown)
  const names = [...namesIn(texts), ...namesIn(main.written)]
  const written = withStandIns(texts, notes, names, (filled) => [
    ...parseSettings(teamSection, filled).mistakes,
    ...undefinedNames(filled, main.written),
  ])
  const { data, mistakes: ofSchema } = parseSettings(teamSection, written)
  const claim = claimOf(written)
  mistakes.push(...ofSchema.map(explained))
  if (data !== undefined && mistakes.length === 0) mistakes.push(...ownIssues(data, name, main.settings))
  mistakes.push(...undefinedNames(written, main.written))
  const owned = claim && ownedBy(claim, main.settings.listen.hosts)
  return {
    ...unread,
    written,
    settings: mistakes.length === 0 ? data : undefined,
    owner: owned && { owned, match: writeClaim(claim) },
    problems: source.locate(mistakes),
    notes: source.locate(notes),
    locate: source.locate,
  }
}

/** Says that a key of the main file is in the wrong file. */
function explained(issue: Issue): Issue {
  const [key] = issue.path
  const isGlobal = issue.path.length === 1 && GLOBAL_KEYS.has(String(key))
  return isGlobal && issue.message.startsWith('unknown key')
    ? { ...issue, message: 'belongs in the main file; a team cannot set it' }
    : issue
}

/** Returns the claim of a file that may have mistakes elsewhere; undefined if the claim has one. */
function claimOf({ prefix, host }: JsonObject): Claim | undefined {
  const { shape } = teamSection.in
  const read = { prefix: shape['prefix']!.safeParse(prefix), host: shape['host']!.safeParse(host) }
  if (!read.prefix.success || !read.host.success) return undefined
  const claim = { prefix: read.prefix.data, host: read.host.data } as Claim
  return claim.prefix === undefined && claim.host === undefined ? undefined : claim
}

/** Yields the mistakes of a valid file that involve several of its keys, or the main file. */
function* ownIssues(team: TeamSettings, name: string, main: Settings): Generator<Issue> {
  const { routes, parameters } = team
  yield* foreignFiles(team, name)
  yield* claimIssues(main, team)
  yield* strayRoutes(routes, team)
  yield* unusedParameters({ ...team, parameters, limits: [...main.limits, ...team.limits] })
  for (const [name, { secret }] of Object.entries(parameters))
    if (secret === true)
      yield issueAt(
        ['parameters', name],
        'can be a secret only in the main file, for all files; write it there',
      )
  for (const [i, { authenticate }] of routes.entries())
    if (authenticate === 'par' || authenticate === 'authorization')
      yield issueAt(
        ['routes', i, 'authenticate'],
        'must be none or bearer: the endpoints of identity belong in the main file',
      )
}
