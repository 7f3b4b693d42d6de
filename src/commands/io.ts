import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import type { Loaded, LoadOptions, FlagOverride } from '../config/load.ts'
import { escaped } from '../observe/pretty.ts'

/** What commands use of their process; tests bring their own. */
export interface Io extends Pick<NodeJS.Process, 'env' | 'exit' | 'on' | 'once' | 'send'> {
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number }
  readonly stderr: Writable & { readonly isTTY?: boolean }
}

/** The parsed arguments of a command. */
export type Args = Readonly<Record<string, unknown>>

/** A command line that asks for something that there is not. */
export class UsageError extends Error {}

/** Writes lines, escaped: callers and logs choose some words, which must not move a cursor. */
export function writeLines(stream: Writable, text: string): void {
  stream.write(`${text.split('\n').map(escaped).join('\n')}\n`)
}

/** Writes a value, with `--json` as JSON, else as `describe` puts it. */
export function print<T>({ stdout }: Io, args: Args, value: T, describe: (value: T) => string): void {
  writeLines(stdout, args['json'] === true ? JSON.stringify(value, undefined, 2) : describe(value))
}

/** Writes the file that `--output` names; with `wx`, not over one that exists. Rejects with words for the operator. */
export async function writeOutput(file: string, text: string, flag: 'w' | 'wx' = 'w'): Promise<void> {
  try {
    await writeFile(file, text, { flag })
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    throw new Error(UNWRITTEN[code]?.(file) ?? `${file} cannot be written: ${message}`, { cause: error })
  }
}

/** Throws what `writeOutput` would reject with, as far as it is known before: with `over`, a file that exists is no obstacle. */
export function refuseOutput(file: string, over: boolean): void {
  const code = !existsSync(dirname(file)) ? 'ENOENT' : !over && existsSync(file) ? 'EEXIST' : undefined
  if (code !== undefined) throw new Error(UNWRITTEN[code]!(file))
}

const UNWRITTEN: Readonly<Record<string, (file: string) => string>> = {
  EEXIST: (file) => `${file} exists already. Give --force to overwrite it, or another --output.`,
  ENOENT: (file) =>
    `${file} cannot be written: its folder does not exist. Create it, or give another --output.`,
}

/** The flags that beat the file. Their texts go through the schema like the file's. */
export const FLAGS: Readonly<
  Record<string, { readonly path: readonly string[]; readonly describe: string }>
> = {
  host: { path: ['listen', 'host'], describe: 'address that callers connect to' },
  port: { path: ['listen', 'port'], describe: 'port that callers connect to; 0 takes a free one' },
  'admin-host': { path: ['admin', 'host'], describe: 'address of the admin listener' },
  'admin-port': { path: ['admin', 'port'], describe: 'port of the admin listener' },
  store: { path: ['store'], describe: '"memory" counts in this process alone' },
  redis: {
    path: ['store', 'redis', 'url'],
    describe:
      'URL of the Redis that counts; credentials and TLS stay the file’s, unless the URL brings its own',
  },
  'log-level': { path: ['log', 'level'], describe: 'fatal, error, warn, info, debug, trace or silent' },
  'log-format': { path: ['log', 'format'], describe: 'json or pretty' },
}

/** The overrides that parsed flags ask for; flags that were not given are undefined. */
export function overridesOf(given: Readonly<Record<string, unknown>>): readonly FlagOverride[] {
  return Object.entries(FLAGS).flatMap(([name, { path }]) => {
    const value = given[name]
    return typeof value === 'string' ? [{ flag: `--${name}`, path, value }] : []
  })
}

/** The file that is read unless another is named. */
export const DEFAULT_FILE = 'sluice.yaml'

/** Returns the file of `--config` or SLUICE_CONFIG, else `./sluice.yaml` if there is one, and says so; undefined without. */
export function fileOf(args: Args, { env, stderr }: Io): string | undefined {
  const named = textOf(args, 'config') ?? env['SLUICE_CONFIG']
  if (named !== undefined && named !== '') return named
  if (!existsSync(DEFAULT_FILE)) return undefined
  writeLines(stderr, `Using ./${DEFAULT_FILE}.`)
  return DEFAULT_FILE
}

/** What `--config` and the flags beside it ask for; throws a UsageError without a file. */
export function loadOptionsOf(args: Args, io: Io): LoadOptions {
  const file = fileOf(args, io)
  if (file === undefined)
    throw new UsageError(
      `Which configuration? Give --config FILE, set SLUICE_CONFIG, or name it ${DEFAULT_FILE}.`,
    )
  return { file, overrides: overridesOf(args), env: io.env }
}

/** Loads the configuration; the parser is imported when it is needed, so that help is quick. */
export async function load(args: Args, io: Io): Promise<Loaded> {
  const options = loadOptionsOf(args, io)
  return (await import('../config/load.ts')).loadConfig(options)
}

/** The words behind the command. */
export function positionals(args: Args): readonly string[] {
  return (args['_'] as readonly unknown[]).slice(1).map(String)
}

/** The text of a flag; undefined where it was not given. */
export function textOf(args: Args, flag: string): string | undefined {
  const text = args[flag]
  return typeof text === 'string' ? text : undefined
}

/** An id that must not be empty; undefined where it was not given. Throws a UsageError. */
export function idOf(args: Args, whose: 'client' | 'user'): string | undefined {
  const id = textOf(args, whose)
  if (id === '') throw new UsageError(`Which ${whose}? Give its id.`)
  return id
}

/** The highest port. */
export const MOST_PORT = 65_535

/** A whole number of a flag, within bounds; throws a UsageError. */
export function wholeOf(args: Args, flag: string, most: number, least = 0, orElse = ''): number {
  const text = String(args[flag])
  if (/^\d{1,16}$/.test(text) && Number(text) >= least && Number(text) <= most) return Number(text)
  throw new UsageError(`--${flag} must be a whole number from ${least} to ${most}${orElse}.`)
}
