import { readFileSync } from 'node:fs'

/** From the sources the manifest is two folders up, from the build three. */
const PATHS = ['../../package.json', '../../../package.json']

/** The version of this Sluice, as in package.json. */
export const VERSION = PATHS.map(read).find((found) => found?.name === 'sluice')?.version ?? 'unknown'

function read(path: string): { readonly name: string; readonly version: string } | undefined {
  try {
    return JSON.parse(readFileSync(new URL(path, import.meta.url), 'utf8'))
  } catch {
    return undefined
  }
}
