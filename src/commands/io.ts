import { existsSync, readFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import type { Loaded, LoadOptions } from '../config/load.ts'
import type { FlagOverride } from '../config/main-file.ts'
import { escaped } from '../observe/log-lines.ts'
import { packageFile } from '../runtime/package.ts'
import { OVERRIDES } from './flags.ts'

/** The parts of the process that commands use; tests pass their own. */
export interface Io extends Pick<NodeJS.Process, 'argv' | 'env' | 'exit' | 'on' | 'once' | 'send'> {
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Writable & Partial<Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'rows'>>
  readonly stderr: Writable & { readonly isTTY?: boolean }
}

export type Args = Readonly<Record<string, unknown>>

/** An invalid command line; exits with 64. */
export class UsageError extends Error {}

export function interruption(io: Io): AbortSignal {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  return ending.signal
}

/** Writes lines, escaped: callers choose some of the text in them, which must not move the cursor. */
export function writeLines(stream: Writable, text: string): void {
  stream.write(`${text.split('\n').map(escaped).join('\n')}\n`)
}

export function print<T>({ stdout }: Io, args: Args, value: T, show: (value: T) => string): void {
  writeLines(stdout, args['json'] === true ? JSON.stringify(value, undefined, 2) : show(value))
}

/** Returns the settings that flags override. The schema checks their values as it does the file's. */
export function overridesOf(args: Args): readonly FlagOverride[] {
  return Object.entries(OVERRIDES).flatMap(([name, { path }]) => {
    const value = textOf(args, name)
    if (value === undefined) return []
    // Paths in the file are relative to it, those of flags to the working directory.
    const given = name === 'keep' ? resolve(value) : value
    return [{ flag: `--${name}`, path: path.split('.'), value: given }]
  })
}

export const DEFAULT_FILE = 'sluice.yaml'

/** Returns the file of `--config` or SLUICE_CONFIG, else an existing `./sluice.yaml`, which it reports on `stderr`. */
export function fileOf(args: Args, { env, stderr }: Io): string | undefined {
  const given = textOf(args, 'config')
  if (given === '') throw new UsageError('Give --config a value.')
  const file = given ?? env['SLUICE_CONFIG']
  if (file) return file
  if (!existsSync(DEFAULT_FILE)) return undefined
  writeLines(stderr, `Using ./${DEFAULT_FILE}.`)
  return DEFAULT_FILE
}

export function loadOptionsOf(args: Args, io: Io): LoadOptions {
  const file = fileOf(args, io)
  if (file !== undefined) return { file, overrides: overridesOf(args), env: io.env }
  const remedy = `Give --config FILE, set SLUICE_CONFIG, or name it ${DEFAULT_FILE}`
  throw new UsageError(`Which configuration? ${remedy}.`)
}

/** Loads the configuration. Imports the parser only here, so that `--help` is fast. */
export async function load(args: Args, io: Io): Promise<Loaded> {
  const options = loadOptionsOf(args, io)
  return (await import('../config/load.ts')).loadConfig(options)
}

export const positionals = (args: Args): readonly string[] =>
  (args['_'] as readonly unknown[]).slice(1).map(String)

export const textOf = (args: Args, flag: string): string | undefined =>
  typeof args[flag] === 'string' ? args[flag] : undefined

/** Quotes a word for a shell, if it needs that. */
export const shellWord = (text: string): string =>
  /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** Returns how a shell starts this program: by its name if it was installed for every shell, else by its path. */
export function programOf({ argv: [, path = ''] }: Io): string {
  const isInstalled = basename(path) === 'sluice' && !path.includes('node_modules')
  return isInstalled ? 'sluice' : shellWord(path)
}

export const MAX_PORT = 65_535

export function wholeOf(args: Args, flag: string, max: number, min = 0): number {
  const text = String(args[flag])
  if (/^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text)
  throw new UsageError(`--${flag} must be a whole number from ${min} to ${max}.`)
}

type Values = Readonly<Record<string, string | number | boolean | readonly string[]>>

/**
 * Fills in a text of the folder `config`: `${name}` is a value; a line that begins with `@name ` is
 * written for each item of a list, and not for false or an empty text.
 */
export function fillIn(file: string, values: Values): string {
  const text = readFileSync(packageFile(`config/${file}`), 'utf8')
  const fill = (line: string, own: Values): string =>
    line.replaceAll(/\$\{([a-z]+)\}/g, (_, name: string) => String(own[name]))
  return text.replaceAll(/^(?:@([\w-]+) ?)?(.*\n)/gm, (_, key: string | undefined, line: string) => {
    if (key === undefined) return fill(line, values)
    const items = [values[key] || []].flat()
    return items.map((item) => fill(line, { ...values, [key]: item })).join('')
  })
}
