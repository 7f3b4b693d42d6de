import { createHash } from 'node:crypto'
import { dirname, resolve } from 'node:path'
import { crossCheck } from './checks/checks.ts'
import { nodeWarnings } from './checks/node-options.ts'
import { warningsOf } from './checks/warnings.ts'
import { compile } from './compile.ts'
import { differences } from './differences.ts'
import { filesOf, readSecret, readText } from './files.ts'
import { type Config, SECRETS, settings } from './schema.ts'
import { ConfigError, type Issue, mistakesOf, type Path, problemsOf } from './yaml/issue.ts'
import { type Env, isMapping, type Mapping, readSource } from './yaml/source.ts'

/** What `loadConfig` read. */
export interface Loaded {
  readonly config: Config
  /** The file as it was named; `-` is standard input. */
  readonly file: string
  readonly text: string
  /** The SHA-256 of the file’s text, in hex. */
  readonly hash: string
  /** What differs from the text before, in the file's words and without secrets; none unless that is given. */
  readonly changes: readonly string[]
  /** The SHA-256 of all that was read: the text, the files that it names, and the environment. */
  readonly content: string
  /** The files of TLS, the listener’s and the upstreams’, which may be renewed while the text stays. */
  readonly certificates: readonly string[]
}

/** A value that beats the file's, and the flag that gave it. */
export interface FlagOverride {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

export interface LoadOptions {
  readonly file: string
  /** The text of the file, where it was read before. */
  readonly text?: string | undefined
  /** The text of the file that is in force. */
  readonly before?: string | undefined
  readonly overrides?: readonly FlagOverride[]
  readonly env?: Env
  /** Epoch milliseconds; for the warnings of what has passed. */
  readonly nowMs?: number
}

/** Reads, checks and compiles a configuration; rejects with a `ConfigError` that lists every mistake of the first step that finds some. */
export async function loadConfig({
  file,
  text: given,
  before,
  overrides = [],
  env = process.env,
  nowMs = Date.now(),
}: LoadOptions): Promise<Loaded> {
  const text = given ?? (await readText(file))
  const source = readSource(text, env)
  const flagOf = (path: Path) =>
    overrides.findLast((one) => one.path.every((step, i) => step === path[i]))?.flag
  const located = (mistakes: readonly Issue[]) =>
    problemsOf(mistakes, file === '-' ? 'stdin' : file, source.placeOf, flagOf)
  const refuse = (mistakes: readonly Issue[]) => new ConfigError(located(mistakes))
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
  const { listen, upstreams } = parsed.data
  return {
    config: {
      ...config,
      warnings: [...located([...source.warnings, ...warningsOf(config, nowMs)]), ...nodeWarnings(env)],
    },
    file,
    text,
    changes: before === undefined ? [] : differences(before, text),
    hash: createHash('sha256').update(text).digest('hex'),
    content: createHash('sha256').update(text).update(JSON.stringify(config)).digest('hex'),
    certificates: filesOf([listen.tls, ...upstreams.map(({ tls }) => tls)], directory),
  }
}

/** Returns a copy of a file's value with the values of flags. */
export const overridden = (file: Mapping, overrides: readonly FlagOverride[]): Mapping =>
  overrides.reduce(override, file)

/** A copy of a file's value with the value of a flag; one URL of Redis replaces all of its addresses. */
function override(file: Mapping, { path, value }: FlagOverride): Mapping {
  const redis = path.at(-1) === 'url' ? get(file, path.slice(0, -1)) : undefined
  return isMapping(redis) ? put(file, path.slice(0, -1), withUrl(redis, value)) : put(file, path, value)
}

/** The settings of Redis with another URL, which takes user, password and TLS over from them unless it brings its own. */
function withUrl(redis: Mapping, given: string): Mapping {
  const gone = new Set([
    ...['cluster', 'sentinels', 'name', 'sentinelUsername', 'sentinelPassword'],
    ...(given.includes('@') ? ['username', 'password'] : []),
    ...(given.startsWith('redis') ? [] : ['tls']),
  ])
  const [, tls = '', user = ''] = /^redis(s?):\/\/([^@/]+@)?/.exec(String(redis['url'])) ?? []
  const url = given.replace(/^redis(s?):\/\/(?!.*@)/, (_, own: string) => `redis${own || tls}://${user}`)
  return { ...Object.fromEntries(Object.entries(redis).filter(([key]) => !gone.has(key))), url }
}

/** The value at a path; undefined where there is none. */
function get(value: unknown, path: Path): unknown {
  return path.reduce(
    (inner, step) =>
      typeof inner === 'object' && inner !== null && Object.hasOwn(inner, step)
        ? (inner as Record<string | number, unknown>)[step]
        : undefined,
    value,
  )
}

/** A copy with another value at a path, and mappings that lead there; what is not on the path is shared. */
function put<T>(value: T, [step, ...rest]: Path, leaf: unknown): T {
  if (step === undefined) return leaf as T
  const copy: unknown = Array.isArray(value) ? [...value] : isMapping(value) ? { ...value } : {}
  const inner = copy as Record<string | number, unknown>
  inner[step] = put(inner[step], rest, leaf)
  return inner as T
}

/** The paths of a pattern in which `*` is every item of a list, or every key of a mapping. */
function pathsOf(value: unknown, pattern: Path): readonly Path[] {
  const star = pattern.indexOf('*')
  if (star === -1) return [pattern]
  const items = get(value, pattern.slice(0, star))
  if (Array.isArray(items)) return items.map((_, i) => pattern.with(star, i))
  return isMapping(items) ? Object.keys(items).map((key) => pattern.with(star, key)) : []
}
