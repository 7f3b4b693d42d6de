import { createHash } from 'node:crypto'
import { dirname, resolve } from 'node:path'
import { crossCheck } from './checks/checks.ts'
import { warningsOf } from './checks/warnings.ts'
import { compile } from './compile/compile.ts'
import { filesOf } from './compile/tls.ts'
import { readSecret, readText } from './files.ts'
import { type Config, SECRETS, settings } from './schema.ts'
import { ConfigError, type Mistake, mistakesOf, type Path, problemsOf } from './yaml/problem.ts'
import type { Env } from './yaml/inspect.ts'
import { isMapping, type Mapping, readSource } from './yaml/source.ts'

export { ConfigError } from './yaml/problem.ts'

/** A value that beats the file's, and the flag that gave it. */
export interface Override {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
  /** The keys beside the value that it replaces too. */
  readonly replaces?: readonly string[]
  /** True if the value is a URL that takes over user, password and TLS of the one that it replaces, unless it has a user of its own. */
  readonly keepsUser?: boolean | undefined
}

/** What `loadConfig` read. */
export interface Loaded {
  readonly config: Config
  /** The file as it was named; `-` is standard input. */
  readonly file: string
  /** The SHA-256 of the file’s text, in hex. */
  readonly hash: string
  /** The SHA-256 of all that was read: the text, the files that it names, and the environment. */
  readonly content: string
  /** The files of TLS, the listener’s and the upstreams’, which may be renewed while the text stays. */
  readonly certificates: readonly string[]
}

export interface LoadOptions {
  readonly file: string
  /** The text of the file, where it was read before. */
  readonly text?: string | undefined
  readonly overrides?: readonly Override[]
  readonly env?: Env
  /** Epoch milliseconds; for the warnings of what has passed. */
  readonly nowMs?: number
}

/** Reads, checks and compiles a configuration; rejects with a `ConfigError` that lists every mistake of the first step that finds some. */
export async function loadConfig({
  file,
  text: given,
  overrides = [],
  env = process.env,
  nowMs = Date.now(),
}: LoadOptions): Promise<Loaded> {
  const text = given ?? (await readText(file))
  const source = readSource(text, env)
  const flagOf = (path: Path) =>
    overrides.findLast((one) => one.path.every((step, i) => step === path[i]))?.flag
  const places = { label: file === '-' ? 'stdin' : file, placeOf: source.placeOf, flagOf }
  const refuse = (mistakes: readonly Mistake[]) => new ConfigError(problemsOf(mistakes, places))
  if (source.value === undefined) throw refuse(source.mistakes)

  const mistakes: Mistake[] = [...source.mistakes]
  let value = overrides.reduce(override, source.value)
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
      warnings: problemsOf([...source.warnings, ...warningsOf(config, nowMs)], places),
    },
    file,
    hash: createHash('sha256').update(text).digest('hex'),
    content: createHash('sha256').update(text).update(JSON.stringify(config)).digest('hex'),
    certificates: filesOf([listen.tls, ...upstreams.map(({ tls }) => tls)], directory),
  }
}

/** A copy of a file's value with the value of a flag. */
function override(file: Mapping, { path, value, replaces = [], keepsUser }: Override): Mapping {
  const around = path.slice(0, -1)
  const inner = get(file, around)
  const kept = isMapping(inner)
    ? Object.fromEntries(Object.entries(inner).filter(([key]) => !replaces.includes(key)))
    : {}
  const given = keepsUser === true ? withUserOf(get(file, path), value) : value
  return put(file, around, { ...kept, [path.at(-1)!]: given })
}

/** A URL of Redis without a user of its own, with user, password and TLS of the one that it replaces. */
function withUserOf(former: unknown, given: string): string {
  const [, tls, user = ''] = /^redis(s?):\/\/([^@/]+@)?/.exec(String(former)) ?? []
  return tls === undefined
    ? given
    : given.replace(/^redis(s?):\/\/(?!.*@)/, (_, own: string) => `redis${own || tls}://${user}`)
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

/** The paths of a pattern in which `*` is every item of a list. */
function pathsOf(value: unknown, pattern: Path): readonly Path[] {
  const star = pattern.indexOf('*')
  if (star === -1) return [pattern]
  const items = get(value, pattern.slice(0, star))
  return Array.isArray(items) ? items.map((_, i) => pattern.with(star, i)) : []
}
