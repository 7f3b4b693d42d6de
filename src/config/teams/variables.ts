import type { JsonObject } from '../../runtime/json.ts'
import { type Issue, issueAt } from '../yaml/issue.ts'
import type { Unknown } from '../offline.ts'
import { substituteAt } from '../resolve-texts.ts'
import { type Env, mapTexts, substitute } from '../yaml/source.ts'

const beginOf = (team: string): string => `${team.toUpperCase().replaceAll('-', '_')}_`

/**
 * Returns the teams that a variable of the environment is of: those with the longest beginning. So
 * `PAYMENTS_EU_TOKEN` is of `payments-eu`, not of `payments`, if both have files.
 */
function ownersOf(variable: string, teams: readonly string[]): readonly string[] {
  const matching = teams.filter((team) => variable.startsWith(beginOf(team)))
  const longest = Math.max(...matching.map((team) => team.length))
  return matching.filter(({ length }) => length === longest)
}

const isOwn = (variable: string, team: string, teams: readonly string[]): boolean =>
  ownersOf(variable, teams).every((owner) => owner === team) && variable.startsWith(beginOf(team))

/** Returns the variables that the file of a team may read; `teams` are all that have a file. */
export const variablesOf = (team: string, env: Env, teams: readonly string[]): Env =>
  Object.fromEntries(Object.entries(env).filter(([name]) => isOwn(name, team, teams)))

/**
 * Substitutes variables of the environment. A team reads only those that begin with its name: others
 * may hold secrets of the gateway or of another team, which its texts and addresses would give away.
 */
export function withOwnVariables(
  value: JsonObject,
  team: string,
  { env, teams }: { readonly env: Env; readonly teams: readonly string[] },
  { mistakes, unknown }: { readonly mistakes: Issue[]; readonly unknown: Unknown[] },
): JsonObject {
  const own = variablesOf(team, env, teams)
  const isForeign = (name: string): boolean => !isOwn(name, team, teams)
  return mapTexts(value, (written, path) => {
    let foreign: string | undefined
    substitute(written, own, (_, unset) => {
      if (unset !== undefined && isForeign(unset)) foreign ??= unset
    })
    if (foreign === undefined) return substituteAt(path, written, own, mistakes, unknown)
    mistakes.push(issueAt(path, foreignText(foreign, team, teams)))
    return written
  })
}

function foreignText(name: string, team: string, teams: readonly string[]): string {
  const refused = `may not read the variable ${name}`
  const other = ownersOf(name, teams).find((owner) => owner !== team)
  if (other === undefined) return `${refused}; those of this file begin with ${beginOf(team)}`
  return `${refused}, which is that of the team "${other}"; rename it`
}
