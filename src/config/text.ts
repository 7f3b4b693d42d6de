import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { ConfigError } from './yaml/issue.ts'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EISDIR: 'is a directory, not a file',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
  ERR_ENCODING_INVALID_ENCODED_DATA: 'is not UTF-8 text; save it as UTF-8',
}

/** The content of standard input, kept for reloads because it can be read only once. */
let standardInput: Promise<Buffer> | undefined

/** Reads a file, or standard input for `-`, as UTF-8; rejects with a `ConfigError`. */
export async function readText(file: string): Promise<string> {
  try {
    const bytes = file === '-' ? await (standardInput ??= buffer(process.stdin)) : await readFile(file)
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    const where = file === '-' ? 'stdin' : file
    throw new ConfigError([{ where, path: '', message: reason(error) }])
  }
}

/** Reads the secret of a text `file:/path`; returns any other text. Reports what is wrong with the text, and then returns undefined. */
export function readSecret(text: string, directory: string, report: (mistake: string) => void) {
  if (!text.startsWith('file:')) return text
  const file = resolve(directory, text.slice('file:'.length).replace(/^\/\/\//, '/'))
  try {
    const secret = readFileSync(file, 'utf8').replace(/\r?\n$/, '')
    if (secret !== '') return secret
    report(`refers to ${file}, which is empty`)
  } catch (error) {
    report(`refers to ${file}, which ${reason(error)}`)
  }
  return undefined
}

/** Returns why a file could not be read, to follow its name in a message. */
export function reason(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException
  return REASONS[code] ?? `cannot be read: ${code || message}`
}
