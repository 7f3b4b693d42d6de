import { dirname, resolve } from 'node:path'
import { isObject, type JsonObject } from '../runtime/json.ts'
import { crossCheck } from './checks.ts'
import { writtenSecrets } from './kept/written-secrets.ts'
import { withStandIns } from './offline.ts'
import { parseSettings } from './parse.ts'
import { resolveTexts } from './resolve-texts.ts'
import { type Settings, settings, settingsWithTeams } from './schema.ts'
import { namesIn, undefinedNames } from './undefined-names.ts'
import { ConfigError, type Issue, type Path } from './yaml/issue.ts'
import { type Env, readSource } from './yaml/source.ts'

/** A value from a command-line flag, which overrides the file. */
export interface FlagOverride {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

/**
 * Reads and checks the main file by itself. Throws a `ConfigError`. `secretFiles` are those of its
 * secrets, `notes` what is not here if that is not a mistake (`offline`).
 */
export function readMainFile(
  text: string,
  file: string,
  { overrides, env, offline }: { overrides: readonly FlagOverride[]; env: Env; offline: boolean },
) {
  const source = readSource(text, file)
  const flagOf = (path: Path) =>
    overrides.findLast((override) => override.path.every((step, i) => step === path[i]))?.flag
  const locate = (issues: readonly Issue[]) => source.locate(issues, flagOf)
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  const isOfFlag = (path: Path): boolean => flagOf(path) !== undefined
  const texts = resolveTexts(overridden(source.value, overrides), { env, directory, isOfFlag })
  const { padded, unknown, secretFiles } = texts
  const schema = texts.value['include'] === undefined ? settings : settingsWithTeams
  const notes = offline ? unknown : []
  const mistakes: Issue[] = offline ? [...texts.mistakes] : [...texts.mistakes, ...unknown]
  const value = withStandIns(texts.value, notes, namesIn(texts.value), (filled) => [
    ...parseSettings(schema, filled).mistakes,
    ...undefinedNames(filled),
  ])
  const { data, mistakes: ofSchema } = parseSettings(schema, value)
  mistakes.push(...ofSchema)
  if (data !== undefined && mistakes.length === 0) mistakes.push(...crossCheck(withRoutes(data)))
  mistakes.push(...undefinedNames(value), ...writtenSecrets(source.value))
  if (data === undefined || mistakes.length > 0) throw new ConfigError(locate(mistakes))
  return {
    file,
    env,
    settings: withRoutes(data),
    written: value,
    source,
    secretFiles,
    padded,
    notes,
    offline,
    directory,
    locate,
  }
}

const withRoutes = (
  read: Omit<Settings, 'routes'> & { routes?: Settings['routes'] | undefined },
): Settings => ({
  ...read,
  routes: read.routes ?? [],
})

export const overridden = (file: JsonObject, overrides: readonly FlagOverride[]): JsonObject =>
  overrides.reduce((value, { path, value: override }) => put(value, path, override), file)

function put(mapping: JsonObject, [key, ...rest]: readonly string[], value: string): JsonObject {
  // The URL of Redis replaces all other settings of that server: addresses, credentials and TLS.
  if (key === 'url') return { url: value }
  const inner = isObject(mapping[key!]) ? mapping[key!] : {}
  return { ...mapping, [key!]: rest.length > 0 ? put(inner as JsonObject, rest, value) : value }
}
