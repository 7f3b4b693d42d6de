import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { isObject, type JsonObject, parseObject } from '../../runtime/json.ts'
import { VERSION } from '../../runtime/package.ts'
import { type FlagOverride, overridden } from '../main-file.ts'
import { reason } from '../text.ts'
import type { TeamText, Texts } from '../texts.ts'
import { withoutClientList } from '../yaml/parts.ts'
import { type Env, substitute } from '../yaml/source.ts'
import { toError } from '../../runtime/to-error.ts'

/** The configuration that `configuration.keep` holds. */
export interface Kept extends Texts {
  readonly file: string
  /** Epoch milliseconds. */
  readonly writtenAt: number
}

/** Maximum size in bytes: more than a configuration of 100,000 clients. */
const MAX_BYTES = 256 * 1024 ** 2

/** Formats texts for `configuration.keep`; they are kept only for `file`, the main file. */
export const formatKept = ({ text, teams }: Texts, file: string): string =>
  JSON.stringify({
    sluice: VERSION,
    file: resolve(file),
    text,
    teams: teams.map(({ path, text }) => ({ path, text })),
  })

/**
 * Returns the path of `configuration.keep` in a main file that may have mistakes: the parser goes on
 * after an error, which may be in another section. A flag may name it, too.
 */
export function keptFileOf(
  text: string,
  file: string,
  overrides: readonly FlagOverride[],
  env: Env,
): string | undefined {
  const { keep, isOfFlag } = readKeep(text, overrides)
  if (typeof keep !== 'string' || keep === '') return undefined
  const directory = file === '-' ? process.cwd() : dirname(resolve(file))
  return resolve(directory, isOfFlag ? keep : substitute(keep, env))
}

function readKeep(text: string, overrides: readonly FlagOverride[]) {
  const flag = overrides.findLast(({ path }) => path.join('.') === 'configuration.keep')
  if (flag !== undefined) return { keep: flag.value, isOfFlag: true }
  const { configuration } = overridden(readLeniently(text), overrides)
  return { keep: isObject(configuration) ? configuration['keep'] : undefined, isOfFlag: false }
}

function readLeniently(text: string): JsonObject {
  try {
    const document = parseDocument(withoutClientList(text), {
      merge: true,
      prettyErrors: false,
      logLevel: 'error',
    })
    const value: unknown = document.toJS()
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

/**
 * Reads what was kept of a main file. Resolves with undefined if there is no such file; rejects with
 * a message that follows its name if it must not be used.
 */
export async function readKept(keptFile: string, file: string): Promise<Kept | undefined> {
  try {
    const { bytes, writtenAt } = await readOwnFile(keptFile)
    return { ...parseKept(bytes, file), file: keptFile, writtenAt }
  } catch (error) {
    const { code } = toError(error)
    if (code === 'ENOENT') return undefined
    if (code === 'ELOOP') throw new Error('is a symbolic link; remove it', { cause: error })
    throw code === undefined ? error : new Error(reason(error), { cause: error })
  }
}

/** Reads a file that only this user, or root, can have written. */
async function readOwnFile(keptFile: string) {
  // Without O_NONBLOCK, opening a named pipe waits for its writer.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW
  const handle = await open(keptFile, flags)
  try {
    const stats = await handle.stat()
    if (!stats.isFile()) throw new Error('is not a regular file; remove it')
    const isOwn = stats.uid === process.geteuid?.() || stats.uid === 0
    if (!isOwn || (stats.mode & 0o022) !== 0)
      throw new Error(
        'may be written by other users; remove it, or chown it to this user and chmod it to 600',
      )
    if (stats.size > MAX_BYTES) throw new Error(`is larger than ${MAX_BYTES} bytes`)
    return { bytes: await handle.readFile(), writtenAt: stats.mtime.getTime() }
  } finally {
    await handle.close()
  }
}

function parseKept(bytes: Buffer, file: string): Texts {
  const { sluice, file: ofFile, text, teams } = parseObject(bytes) ?? {}
  if (typeof sluice !== 'string') throw new Error('does not hold a configuration of Sluice; remove it')
  if (sluice !== VERSION)
    throw new Error(
      `was kept by Sluice ${sluice}, and this is ${VERSION}, which may read it differently; correct the configuration, or start Sluice ${sluice}`,
    )
  if (ofFile !== resolve(file))
    throw new Error(`was kept of ${String(ofFile)}; give each configuration its own file`)
  if (typeof text !== 'string' || !Array.isArray(teams) || !teams.every(isTeamText))
    throw new Error('is incomplete; remove it')
  return { text, teams }
}

const isTeamText = (value: unknown): value is TeamText =>
  isObject(value) && typeof value['path'] === 'string' && typeof value['text'] === 'string'
