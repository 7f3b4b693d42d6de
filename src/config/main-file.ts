import { dirname, resolve } from 'node:path'
import { isObject, type JsonObject } from '../runtime/json.ts'
import { crossCheck } from './checks.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import { writtenSecrets } from './kept/written-secrets.ts'
import { isSecret, type Settings, settings, settingsWithTeams } from './schema.ts'
import { readSecret, secretFile } from './text.ts'
import { undefinedNames } from './undefined-names.ts'
import { ConfigError, type Issue, mistakesOf, type Path } from './yaml/issue.ts'
import { type Env, mapTexts, readSource, substitute } from './yaml/source.ts'

/** A value from a command-line flag, which overrides the file. */
export interface FlagOverride {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

/** Matches white space, line breaks and byte order marks around a text, which no editor shows. */
const PADDED = /^\s|\s$/
const PADDED_SECRET = 'begins or ends with a blank, a line break or a byte order mark; remove it'

/**
 * Reads and checks the main file by itself. Throws a `ConfigError`. `secretFiles` are those of its
 * secrets.
 */
export function readMainFile(
  text: string,
  file: string,
  { overrides, env }: { overrides: readonly FlagOverride[]; env: Env },
) {
  const source = readSource(text, file)
  const flagOf = (path: Path) =>
    overrides.findLast((override) => override.path.every((step, i) => step === path[i]))?.flag
  const mistakes: Issue[] = []
  const padded: Issue[] = []
  const secretFiles: ReadFile[] = []
  const locate = (issues: readonly Issue[]) => source.locate(issues, flagOf)
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  const value = mapTexts(overridden(source.value, overrides), (written, path) => {
    const report = (message: string) => void mistakes.push({ path, message })
    const isOfFlag = flagOf(path) !== undefined
    const text = isOfFlag ? written : substitute(written, env, report)
    const name = isSecret(path) ? secretFile(text, isOfFlag ? process.cwd() : directory) : undefined
    if (name !== undefined) secretFiles.push(stampBeforeRead(name))
    const final = (name && readSecret(name, report)) ?? text
    if (isSecret(path) && PADDED.test(final)) padded.push({ path, message: PADDED_SECRET })
    return final
  })
  const schema = value['include'] === undefined ? settings : settingsWithTeams
  const parsed = schema.safeParse(value)
  if (!parsed.success) mistakes.push(...parsed.error.issues.flatMap((issue) => mistakesOf(issue)))
  else if (mistakes.length === 0) mistakes.push(...crossCheck(withRoutes(parsed.data)))
  mistakes.push(...undefinedNames(value), ...writtenSecrets(source.value))
  if (!parsed.success || mistakes.length > 0) throw new ConfigError(locate(mistakes))
  return {
    file,
    env,
    settings: withRoutes(parsed.data),
    written: value,
    source,
    secretFiles,
    padded,
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
