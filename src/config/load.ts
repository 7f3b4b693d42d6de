import { createHash } from 'node:crypto'
import { dirname, resolve } from 'node:path'
import { crossCheck } from './checks/checks.ts'
import { nodeWarnings, warningsOf } from './checks/warnings.ts'
import { compile } from './compile.ts'
import { filesOf } from './files.ts'
import { type Config, SECRETS, settings } from './schema.ts'
import { differences } from './shown-settings.ts'
import { readSecret, readText } from './text.ts'
import { ConfigError, type Issue, locate, mistakesOf, type Path } from './yaml/issue.ts'
import { type Env, isMapping, type Mapping, readSource } from './yaml/source.ts'

export interface Loaded {
  readonly config: Config
  /** The name of the file, as given; `-` is standard input. */
  readonly file: string
  readonly text: string
  /** The SHA-256 of the file’s text, in hex. */
  readonly hash: string
  /** Differences from `LoadOptions.before`, if given, in the file's words and without secrets. */
  readonly changes: readonly string[]
  /** The SHA-256 of everything that was read: the text, the files that it names, and the environment. */
  readonly content: string
  /** The TLS files of the listener and the upstreams, which may be renewed without a change of the text. */
  readonly certificates: readonly string[]
}

/** A value from a command-line flag, which overrides the file. */
export interface FlagOverride {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

export interface LoadOptions {
  readonly file: string
  /** The text of the file, if it is already read. */
  readonly text?: string | undefined
  /** The text of the configuration in force. */
  readonly before?: string | undefined
  readonly overrides?: readonly FlagOverride[]
  readonly env?: Env
  readonly nowMs?: number
}

/** Reads, checks and compiles a configuration. Rejects with a `ConfigError`, whose mistakes are those of the first step that finds any. */
export async function loadConfig(options: LoadOptions): Promise<Loaded> {
  const { file, before, overrides = [], env = process.env, nowMs = Date.now() } = options
  const text = options.text ?? (await readText(file))
  const source = readSource(text, env)
  const flagOf = (path: Path) =>
    overrides.findLast((override) => override.path.every((step, i) => step === path[i]))?.flag
  const located = (issues: readonly Issue[]) =>
    locate(issues, file === '-' ? 'stdin' : file, source.positionOf, flagOf)
  const refuse = (issues: readonly Issue[]) => new ConfigError(located(issues))
  if (source.value === undefined) throw refuse(source.mistakes)
  const mistakes: Issue[] = [...source.mistakes]

  let value = overridden(source.value, overrides)
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  for (const path of SECRETS.flatMap((secret) => pathsOf(value, secret))) {
    const secret = await readSecret(get(value, path), path, flagOf(path) ? process.cwd() : directory)
    if (secret === undefined) continue
    if ('message' in secret) mistakes.push(secret)
    else value = put(value, path, secret.value)
  }

  const parsed = settings.safeParse(value)
  if (!parsed.success) mistakes.push(...parsed.error.issues.flatMap((issue) => mistakesOf(issue)))
  else if (mistakes.length === 0) mistakes.push(...crossCheck(parsed.data))
  if (!parsed.success || mistakes.length > 0) throw refuse(mistakes)
  const config = await compile(parsed.data, directory, mistakes)
  if (mistakes.length > 0) throw refuse(mistakes)

  const warnings = [...located([...source.warnings, ...warningsOf(config, nowMs)]), ...nodeWarnings(env)]
  const { listen, upstreams } = parsed.data
  return {
    config: { ...config, warnings },
    file,
    text,
    changes: before === undefined ? [] : differences(before, text),
    hash: createHash('sha256').update(text).digest('hex'),
    content: createHash('sha256').update(text).update(JSON.stringify(config)).digest('hex'),
    certificates: filesOf([listen.tls, ...upstreams.map(({ tls }) => tls)], directory),
  }
}

/** Returns a copy of a file's value with the values of flags. A URL of Redis replaces all of its addresses. */
export function overridden(file: Mapping, overrides: readonly FlagOverride[]): Mapping {
  return overrides.reduce((value, { path, value: override }) => {
    const redis = path.at(-1) === 'url' ? get(value, path.slice(0, -1)) : undefined
    if (!isMapping(redis)) return put(value, path, override)
    return put(value, path.slice(0, -1), withUrl(redis, override))
  }, file)
}

/** Returns the settings of Redis with another URL, which keeps user, password and TLS unless it has its own. */
function withUrl(redis: Mapping, override: string): Mapping {
  const replaced = new Set([
    ...['cluster', 'sentinels', 'name', 'sentinelUsername', 'sentinelPassword'],
    ...(override.includes('@') ? ['username', 'password'] : []),
    ...(override.startsWith('redis') ? [] : ['tls']),
  ])
  const [, tls = '', user = ''] = /^redis(s?):\/\/([^@/]+@)?/.exec(String(redis['url'])) ?? []
  const url = override.replace(/^redis(s?):\/\/(?!.*@)/, (_, own: string) => `redis${own || tls}://${user}`)
  return { ...Object.fromEntries(Object.entries(redis).filter(([key]) => !replaced.has(key))), url }
}

function get(value: unknown, path: Path): unknown {
  return path.reduce((inner, step) => {
    const object = Object(inner) as Readonly<Record<string | number, unknown>>
    return Object.hasOwn(object, step) ? object[step] : undefined
  }, value)
}

/** Returns a copy with another value at a path, creating missing mappings. Values off the path are shared. */
function put<T>(value: T, [step, ...rest]: Path, leaf: unknown): T {
  if (step === undefined) return leaf as T
  if (Array.isArray(value)) return value.with(Number(step), put(value[Number(step)], rest, leaf)) as T
  const mapping: Mapping = isMapping(value) ? value : {}
  return { ...mapping, [step]: put(mapping[step], rest, leaf) } as T
}

/** Returns the paths that match a pattern, in which `*` is each item of a list or mapping. */
function pathsOf(value: unknown, pattern: Path): readonly Path[] {
  const star = pattern.indexOf('*')
  if (star === -1) return [pattern]
  const items = get(value, pattern.slice(0, star))
  if (Array.isArray(items)) return items.map((_, i) => pattern.with(star, i))
  return isMapping(items) ? Object.keys(items).map((key) => pattern.with(star, key)) : []
}
