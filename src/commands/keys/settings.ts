import { dirname, resolve } from 'node:path'
import { readText } from '../../config/text.ts'
import { readSource, substitute } from '../../config/yaml/source.ts'
import { isObject } from '../../runtime/json.ts'
import { type Args, textOf, UsageError } from '../args.ts'
import { fileOf } from '../configuration.ts'
import type { Io } from '../io.ts'

/** The part of a configuration that commands need; its other values may be missing here. */
export interface KeysSettings {
  /** The keys' file. */
  readonly file: string
  /** The names of the plans; undefined if there is no configuration. */
  readonly plans: readonly string[] | undefined
}

/**
 * Finds the keys' file: that of `--file`, or of `keys.file` in the configuration, which is also read
 * for the plans that a flag may name.
 */
export async function settingsOf(args: Args, io: Io): Promise<KeysSettings> {
  const given = textOf(args, 'file')
  const isNeeded = given === undefined || ['config', 'plan'].some((flag) => textOf(args, flag) !== undefined)
  const main = isNeeded ? fileOf(args, io) : undefined
  if (main === undefined && given === undefined)
    throw new UsageError(
      'Which keys? Give --config FILE or --file FILE, the file with the hashes of the keys.',
    )
  if (main === undefined) return { file: given!, plans: undefined }
  const { keys, plans } = readSource(await readText(main), main).value
  const names = isObject(plans) ? Object.keys(plans) : []
  if (given !== undefined) return { file: given, plans: names }
  const name = isObject(keys) ? keys['file'] : undefined
  if (typeof name !== 'string')
    throw new UsageError(`${main} has no keys.file. Write keys: { file: keys.yaml } there, or give --file.`)
  const folder = main === '-' ? process.cwd() : dirname(resolve(main))
  return { file: resolve(folder, substitute(name, io.env)), plans: names }
}
