import { basename } from 'node:path'
import type { Io } from './io.ts'

/** Quotes a word for a shell, if it needs that. */
export const shellWord = (text: string): string =>
  /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** Returns how a shell starts this program: by its name if it was installed for every shell, else by its path. */
export function programOf({ argv: [, path = ''] }: Io): string {
  const isInstalled = basename(path) === 'sluice' && !path.includes('node_modules')
  return isInstalled ? 'sluice' : shellWord(path)
}
