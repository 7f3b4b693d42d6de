import { readFileSync } from 'node:fs'

// From the sources the manifest is two folders up, from the build three.
const manifest = ['../../package.json', '../../../package.json']
  .map((path) => new URL(path, import.meta.url))
  .map((url) => {
    try {
      return JSON.parse(readFileSync(url, 'utf8')) as { name: string; version: string }
    } catch {
      return undefined
    }
  })
  .find((found) => found?.name === 'sluice')

/** The version of this Sluice, as in package.json. */
export const VERSION = manifest?.version ?? 'unknown'
