import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Loaded, LoadOptions } from '../config/load.ts'
import type { FlagOverride } from '../config/main-file.ts'
import { type Args, textOf, UsageError } from './args.ts'
import { OVERRIDES } from './flags.ts'
import { type Io, writeLines } from './io.ts'

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

/** The outputs that the name of the file was written to: `explain` looks for it twice. */
const told = new WeakSet<Io['stderr']>()

/** Returns the file of `--config` or SLUICE_CONFIG, else an existing `./sluice.yaml`, which it reports on `stderr`. */
export function fileOf(args: Args, { env, stderr }: Io): string | undefined {
  const given = textOf(args, 'config')
  if (given === '') throw new UsageError('Give --config a value.')
  const file = given ?? env['SLUICE_CONFIG']
  if (file) return file
  if (!existsSync(DEFAULT_FILE)) return undefined
  if (!told.has(stderr)) writeLines(stderr, `Using ./${DEFAULT_FILE}.`)
  told.add(stderr)
  return DEFAULT_FILE
}

export function loadOptionsOf(args: Args, io: Io): LoadOptions {
  const file = fileOf(args, io)
  if (file !== undefined) return { file, overrides: overridesOf(args), env: io.env }
  const remedy = `Give --config FILE, set SLUICE_CONFIG, or name it ${DEFAULT_FILE}; "sluice init" writes one`
  throw new UsageError(`Which configuration? ${remedy}.`)
}

/** Loads the configuration. Imports the parser only here, so that `--help` is fast. */
export async function load(args: Args, io: Io, { offline = false } = {}): Promise<Loaded> {
  const options = { ...loadOptionsOf(args, io), offline }
  return (await import('../config/load.ts')).loadConfig(options)
}
