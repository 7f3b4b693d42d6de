import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { ConfigError, type Mistake, type Path } from './yaml/problem.ts'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EISDIR: 'is a directory, not a file',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
}

/** Standard input, which ends once it is read, for every reload. */
let standardInput: Promise<Buffer> | undefined

/** The bytes of a file, or of standard input for `-`, as text; a `ConfigError` says why not. */
export async function readText(file: string): Promise<string> {
  let bytes: Buffer
  try {
    bytes = file === '-' ? await (standardInput ??= buffer(process.stdin)) : await readFile(file)
  } catch (error) {
    throw new ConfigError([{ where: file, path: '', message: reason(error) }])
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    const where = file === '-' ? 'stdin' : file
    throw new ConfigError([{ where, path: '', message: 'is not UTF-8 text; save it as UTF-8' }])
  }
}

/** Reads the secret that `file:/path` stands for; undefined of any other value. */
export async function readSecret(
  value: unknown,
  path: Path,
  directory: string,
): Promise<{ readonly value: string } | Mistake | undefined> {
  if (typeof value !== 'string' || !value.startsWith('file:')) return undefined
  const file = resolve(directory, value.slice('file:'.length).replace(/^\/\/\//, '/'))
  try {
    const secret = (await readFile(file, 'utf8')).replace(/\r?\n$/, '')
    return secret === '' ? { path, message: `is to be read from ${file}, which is empty` } : { value: secret }
  } catch (error) {
    return { path, message: `is to be read from ${file}, which ${reason(error)}` }
  }
}

/** Words why a file could not be read, to follow its name. */
export function reason(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException
  return REASONS[code] ?? `cannot be read: ${code || message}`
}
