import { constants, readFileSync } from 'node:fs'
import { open, readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { ConfigError } from './yaml/issue.ts'
import { toError } from '../runtime/to-error.ts'

const NOT_REGULAR = 'NOT_REGULAR'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EISDIR: 'is a directory, not a file',
  EACCES: 'may not be read by this user',
  [NOT_REGULAR]: 'is not a regular file; write the path of one',
  ERR_ENCODING_INVALID_ENCODED_DATA: 'is not UTF-8 text; save it as UTF-8',
}

/** The content of standard input, kept for reloads because it can be read only once. */
let standardInput: Promise<Buffer> | undefined

/** Reads a file, or standard input for `-`, as UTF-8; rejects with a `ConfigError`. */
export async function readText(file: string): Promise<string> {
  try {
    return decoded(await (file === '-' ? (standardInput ??= buffer(process.stdin)) : readFile(file)))
  } catch (error) {
    throw new ConfigError([{ where: file === '-' ? 'stdin' : file, path: '', message: reason(error) }])
  }
}

/** Reads the file of a team, which must be a regular file, as UTF-8; rejects with a `ConfigError`. */
export async function readTeamText(file: string): Promise<string> {
  try {
    return decoded(await readRegularFile(file))
  } catch (error) {
    throw new ConfigError([{ where: file, path: '', message: reason(error) }])
  }
}

const decoded = (bytes: Buffer): string =>
  new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)

/**
 * Reads a regular file, or one that links lead to. A named pipe without a writer, or a device
 * without an end, would stop this and every later reload.
 */
export async function readRegularFile(file: string): Promise<Buffer> {
  // Without O_NONBLOCK, opening a named pipe waits for its writer.
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stats = await handle.stat()
    if (!stats.isFile() && !stats.isDirectory())
      throw Object.assign(new Error('not a regular file'), { code: NOT_REGULAR })
    return await handle.readFile()
  } finally {
    await handle.close()
  }
}

/** Returns the file of a text `file:/path`; undefined for any other text. */
export function secretFile(text: string, directory: string): string | undefined {
  if (!text.startsWith('file:')) return undefined
  return resolve(directory, text.slice('file:'.length).replace(/^\/\/\//, '/'))
}

/**
 * Reads the secret in a file. Reports what is wrong with the file, and whether that is only that it is
 * not here; then returns undefined.
 */
export function readSecret(
  file: string,
  report: (mistake: string, isAbsent: boolean) => void,
): string | undefined {
  try {
    const secret = readFileSync(file, 'utf8').replace(/\r?\n$/, '')
    if (secret !== '') return secret
    report(`refers to ${file}, which is empty`, false)
  } catch (error) {
    report(`refers to ${file}, which ${reason(error)}`, isAbsent(error))
  }
  return undefined
}

const ABSENT: ReadonlySet<unknown> = new Set(['ENOENT', 'ENOTDIR', 'EACCES'])

/** True for the error of a file that is not on this machine, or not for this user. */
export const isAbsent = (error: unknown): boolean => ABSENT.has(toError(error).code)

/** Returns why a file could not be read, to follow its name in a message. */
export function reason(error: unknown): string {
  const { code = '', message } = toError(error)
  return REASONS[code] ?? `cannot be read: ${code || message}`
}
