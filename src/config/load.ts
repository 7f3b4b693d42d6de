import { createHash } from 'node:crypto'
import { dirname, resolve } from 'node:path'
import { createNames } from '../limit/caller.ts'
import { crossCheck } from './checks/checks.ts'
import { readSecret, readText } from './files.ts'
import { ConfigError } from './yaml/problem.ts'
import { compileClients } from './compile/clients.ts'
import { compileTokens } from './compile/issuers.ts'
import { compileStore } from './compile/redis.ts'
import { mistakesOf, problemsOf, wantedTexts } from './yaml/report.ts'
import { audiencesOf, compileClientLimits, compileLimits, compileRoutes, hostsOf } from './compile/routes.ts'
import { SECRETS, settings, type Config, type Settings, type Upstream } from './schema.ts'
import type { Path } from './yaml/locate.ts'
import { get, isMapping, placesOf, put } from './yaml/places.ts'
import { readSource, type Mistake } from './yaml/source.ts'
import { typed, type Env } from './yaml/substitute.ts'
import { compileTls, compileUpstreamTls, filesOf } from './compile/tls.ts'
import { warningsOf } from './checks/warnings.ts'

export { ConfigError } from './yaml/problem.ts'

/** A value that beats the file's, and the flag that gave it. A text is typed like a plain YAML scalar. */
export interface Override {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: unknown
  /** The keys beside the value that it replaces too. */
  readonly replaces?: readonly string[]
  /** Is the value a URL that takes over user, password and TLS of the one that it replaces, unless it has a user of its own? */
  readonly keepsUser?: boolean | undefined
  /** What is wrong with the value as this flag gives it, where more is to be said than of the file's. */
  readonly mistake?: string | undefined
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

/** A URL of Redis without a user of its own, with user, password and TLS of the one that it replaces. */
function withUserOf(former: unknown, given: unknown): unknown {
  const [, tls, user = ''] = /^redis(s?):\/\/([^@/]+@)?/.exec(String(former)) ?? []
  return tls === undefined
    ? given
    : String(given).replace(/^redis(s?):\/\/(?!.*@)/, (_, own: string) => `redis${own || tls}://${user}`)
}

/** Reads, checks and compiles a configuration; rejects with a `ConfigError` that lists every mistake. */
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
  const report = { label: file === '-' ? 'stdin' : file, source, flagOf }
  const refuse = (mistakes: readonly Mistake[]) => new ConfigError(problemsOf(mistakes, report))

  const value = source.value
  if (!isMapping(value)) {
    const shapeless = { path: [], message: 'the file must be a mapping; config/sluice.yaml shows its keys' }
    throw refuse(source.mistakes.length > 0 ? source.mistakes : [shapeless])
  }
  for (const one of overrides) {
    const around = get(value, one.path.slice(0, -1))
    for (const key of one.replaces ?? []) if (isMapping(around)) delete around[key]
    const given = one.keepsUser === true ? withUserOf(get(value, one.path), one.value) : one.value
    put(value, one.path, typeof given === 'string' ? typed(given) : given)
  }

  const mistakes: Mistake[] = [...source.mistakes]
  for (const { path, mistake } of overrides)
    if (mistake !== undefined) mistakes.push({ path, message: mistake })
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  for (const path of SECRETS.flatMap((secret) => placesOf(value, secret))) {
    const secret = await readSecret(get(value, path), path, flagOf(path) ? process.cwd() : directory)
    if ('message' in secret) mistakes.push(secret)
    else if (secret.value !== undefined) put(value, path, secret.value)
  }

  const textAt = (path: Path) => {
    const given = overrides.findLast((one) => one.path.join('.') === path.join('.'))?.value
    return typeof given === 'string' ? given : source.textAt(path)
  }
  const parsed = parse(value, textAt)
  if (!parsed.success) mistakes.push(...parsed.error.issues.flatMap((issue) => mistakesOf(issue)))
  mistakes.push(...crossCheck(value))
  if (!parsed.success || mistakes.length > 0) throw refuse(mistakes)

  const config = await compile(parsed.data, directory, mistakes)
  if (mistakes.length > 0) throw refuse(mistakes)
  const warnings = problemsOf([...source.warnings, ...warningsOf(config, nowMs)], report)
  return {
    config: { ...config, warnings },
    file,
    hash: createHash('sha256').update(text).digest('hex'),
    content: createHash('sha256').update(text).update(JSON.stringify(config)).digest('hex'),
    certificates: filesOf(
      [parsed.data.listen.tls, ...Object.values(parsed.data.upstreams).map(({ tls }) => tls)],
      directory,
    ),
  }
}

/** Parses; where the environment or a flag gave a number or boolean and a text is wanted, with the text that it gave. */
function parse(value: Record<string, unknown>, textAt: (path: Path) => string | undefined) {
  const parsed = settings.safeParse(value)
  if (parsed.success) return parsed
  let changed = false
  for (const path of parsed.error.issues.flatMap((issue) => wantedTexts(issue))) {
    const text = textAt(path)
    if (text === undefined) continue
    put(value, path, text)
    changed = true
  }
  return changed ? settings.safeParse(value) : parsed
}

async function compile(
  parsed: Settings,
  directory: string,
  mistakes: Mistake[],
): Promise<Omit<Config, 'warnings'>> {
  const { upstreams, listen, clients, par } = parsed
  const limits = compileLimits(parsed.limits)
  const routes = compileRoutes(parsed.routes, limits, par?.maxBody, listen.hosts)
  const nameOf = createNames([parsed.tokens ?? []].flat().map(({ issuer }) => issuer))
  return {
    ...parsed,
    listen: {
      ...listen,
      hosts: listen.hosts ?? hostsOf(routes),
      tls: await compileTls(listen.tls, directory, mistakes),
    },
    store: await compileStore(parsed.store, directory, mistakes),
    upstreams: await compileUpstreams(upstreams, directory, mistakes),
    tokens: await compileTokens(parsed.tokens, directory, mistakes),
    par: par && { ...par, audiences: par.audiences ?? audiencesOf(par.issuer) },
    clients: await compileClients(clients, nameOf, mistakes),
    limits,
    clientLimits: compileClientLimits(clients, nameOf),
    routes,
  }
}

async function compileUpstreams(
  upstreams: Settings['upstreams'],
  directory: string,
  mistakes: Mistake[],
): Promise<readonly Upstream[]> {
  const compiled: Upstream[] = []
  for (const [name, { tls, ...rest }] of Object.entries(upstreams)) {
    const path = ['upstreams', name, 'tls']
    compiled.push({
      name,
      ...rest,
      tls: tls && (await compileUpstreamTls(tls, path, directory, mistakes)),
    })
  }
  return compiled
}
