import { createHash } from 'node:crypto'
import { dirname, resolve } from 'node:path'
import { crossCheck } from './checks.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import { undefinedNames } from './undefined-names.ts'
import { nodeWarnings, warningsOf } from './warnings.ts'
import { compile, type Config } from './compile.ts'
import { isSecret, settings } from './schema.ts'
import { isObject, type JsonObject } from '../runtime/json.ts'
import { differences } from './shown-settings.ts'
import { readSecret, readText, secretFile } from './text.ts'
import { ConfigError, type Issue, mistakesOf, type Path } from './yaml/issue.ts'
import { type Env, mapTexts, readSource, substitute } from './yaml/source.ts'

/** A configuration that was read. */
export interface Loaded {
  readonly config: Config
  /** The name of the file, as given; `-` is standard input. */
  readonly file: string
  readonly text: string
  /** Differences from `LoadOptions.before`, if given, in the file's words and without secrets. */
  readonly changes: readonly string[]
  /** The SHA-256 of the file’s text, in hex. */
  readonly hash: string
  /**
   * The SHA-256 of everything that was read: the text, the files that it names, and the
   * environment.
   */
  readonly content: string
  /** The files that were read: this one, and those of secrets, keys and certificates. */
  readonly files: readonly ReadFile[]
}

/** A value from a command-line flag, which overrides the file. */
export interface FlagOverride {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

export interface LoadOptions {
  readonly file: string
  readonly text?: string | undefined
  /** The text of the configuration in force. */
  readonly before?: string | undefined
  readonly overrides?: readonly FlagOverride[]
  readonly env?: Env
  readonly nowMs?: number
}

/** Matches white space, line breaks and byte order marks around a text, which no editor shows. */
const PADDED = /^\s|\s$/
const PADDED_SECRET = 'begins or ends with a blank, a line break or a byte order mark; remove it'

/**
 * Reads, checks and compiles a configuration. Rejects with a `ConfigError`, whose mistakes are
 * those of the first step that finds any.
 */
export async function loadConfig(options: LoadOptions): Promise<Loaded> {
  const { file, before, overrides = [], env = process.env, nowMs = Date.now() } = options
  const files = options.text === undefined && file !== '-' ? [stampBeforeRead(file)] : []
  const text = options.text ?? (await readText(file))
  const source = readSource(text, file)
  const flagOf = (path: Path) =>
    overrides.findLast((override) => override.path.every((step, i) => step === path[i]))?.flag
  const mistakes: Issue[] = []
  const padded: Issue[] = []
  const refuse = () => new ConfigError(source.locate(mistakes, flagOf))
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  const value = mapTexts(overridden(source.value, overrides), (written, path) => {
    const report = (message: string) => void mistakes.push({ path, message })
    const isOfFlag = flagOf(path) !== undefined
    const text = isOfFlag ? written : substitute(written, env, report)
    const name = isSecret(path) ? secretFile(text, isOfFlag ? process.cwd() : directory) : undefined
    if (name !== undefined) files.push(stampBeforeRead(name))
    const final = (name && readSecret(name, report)) ?? text
    if (isSecret(path) && PADDED.test(final)) padded.push({ path, message: PADDED_SECRET })
    return final
  })
  const parsed = settings.safeParse(value)
  if (!parsed.success) mistakes.push(...parsed.error.issues.flatMap((issue) => mistakesOf(issue)))
  else if (mistakes.length === 0) mistakes.push(...crossCheck(parsed.data))
  mistakes.push(...undefinedNames(value))
  if (!parsed.success || mistakes.length > 0) throw refuse()
  const compiled = await compile(parsed.data, directory, files, mistakes)
  if (mistakes.length > 0) throw refuse()

  const warnings = [
    ...source.locate([...padded, ...warningsOf(compiled, nowMs)], flagOf),
    ...nodeWarnings(env),
  ]
  return {
    config: { ...compiled, warnings },
    file,
    text,
    // Parsing 30,000 clients takes two seconds.
    changes: before === undefined || before === text ? [] : differences(before, source.value, file),
    hash: createHash('sha256').update(text).digest('hex'),
    content: createHash('sha256').update(text).update(JSON.stringify(compiled)).digest('hex'),
    files,
  }
}

export const overridden = (file: JsonObject, overrides: readonly FlagOverride[]): JsonObject =>
  overrides.reduce((value, { path, value: override }) => put(value, path, override), file)

function put(mapping: JsonObject, [key, ...rest]: readonly string[], value: string): JsonObject {
  // The URL of Redis replaces all other settings of that server: addresses, credentials and TLS.
  if (key === 'url') return { url: value }
  const inner = isObject(mapping[key!]) ? mapping[key!] : {}
  return { ...mapping, [key!]: rest.length > 0 ? put(inner as JsonObject, rest, value) : value }
}
