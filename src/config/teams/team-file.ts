import { basename, extname } from 'node:path'
import type { Pattern } from '../../downstream/router.ts'
import type { JsonObject } from '../../runtime/json.ts'
import { unusedParameters } from '../checks.ts'
import { teamSection } from '../sections/team.ts'
import { type DefinedNames, undefinedNames } from '../undefined-names.ts'
import { type Settings, settings, type TeamSettings } from '../schema.ts'
import { ConfigError, type Issue, issueAt, type LocatedIssue, mistakesOf } from '../yaml/issue.ts'
import type { TeamText } from '../texts.ts'
import { type Env, mapTexts, readSource, substitute } from '../yaml/source.ts'
import { shownPath } from './glob.ts'
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
  /** What it owns, also of a file with mistakes elsewhere; undefined if that cannot be read. */
  readonly owner: { readonly owned: Pattern; readonly match: string } | undefined
  readonly problems: readonly LocatedIssue[]
  locate(issues: readonly Issue[]): readonly LocatedIssue[]
}

/** What the main file determines for teams. */
export interface MainFile {
  /** As given. */
  readonly file: string
  readonly settings: Settings
  /** Its keys as written, for the names of limits and upstreams. */
  readonly written: DefinedNames
  readonly env: Env
  locate(issues: readonly Issue[]): readonly LocatedIssue[]
}

/** Keys that only the main file may have. */
const GLOBAL_KEYS: ReadonlySet<string> = new Set(
  Object.keys(settings.in.shape).filter((key) => !(key in teamSection.in.shape)),
)

/** Returns the name of a team, by the path of its file. */
export const teamNameOf = (path: string): string => basename(path, extname(path))

/** Reads a version of a team's file, and checks it by itself and against the main file. */
export function readTeamFile({ path, text, problem }: ReadTeam, main: MainFile): TeamFile {
  const name = teamNameOf(path)
  const file = shownPath(path, main.file)
  const unread = { path, text, name, file, written: undefined, settings: undefined, owner: undefined }
  const fail = (problems: readonly LocatedIssue[]): TeamFile => ({ ...unread, problems, locate: () => [] })
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
  const written = withOwnVariables(source.value, name, main.env, mistakes)
  const parsed = teamSection.safeParse(written)
  const claim = claimOf(written)
  if (!parsed.success)
    mistakes.push(...parsed.error.issues.flatMap((issue) => mistakesOf(issue)).map(explained))
  else if (mistakes.length === 0) mistakes.push(...ownIssues(parsed.data, main.settings))
  mistakes.push(...undefinedNames(written, main.written))
  const owned = claim && ownedBy(claim, main.settings.listen.hosts)
  return {
    ...unread,
    written,
    settings: mistakes.length === 0 ? parsed.data : undefined,
    owner: owned && { owned, match: writeClaim(claim) },
    problems: source.locate(mistakes),
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

const beginOfVariables = (team: string): string => `${team.toUpperCase().replaceAll('-', '_')}_`

/** Returns the variables that the file of a team may read. */
export function variablesOf(team: string, env: Env): Env {
  const begin = beginOfVariables(team)
  return Object.fromEntries(Object.entries(env).filter(([name]) => name.startsWith(begin)))
}

/**
 * Substitutes variables of the environment. A team reads only those that begin with its name: others
 * may hold secrets of the gateway, which its texts and addresses would give away.
 */
function withOwnVariables(value: JsonObject, team: string, env: Env, mistakes: Issue[]): JsonObject {
  const begin = beginOfVariables(team)
  const own = variablesOf(team, env)
  return mapTexts(value, (written, path) =>
    substitute(written, own, (message) => {
      const [, name] = /variable (\w+);/.exec(message) ?? []
      const isForeign = name !== undefined && !name.startsWith(begin)
      if (isForeign)
        mistakes.push(
          issueAt(path, `may not read the variable ${name}; those of this file begin with ${begin}`),
        )
      else mistakes.push(issueAt(path, message))
    }),
  )
}

/** Yields the mistakes of a valid file that involve several of its keys, or the main file. */
function* ownIssues(team: TeamSettings, main: Settings): Generator<Issue> {
  const { routes, parameters } = team
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
