import { readFileSync } from 'node:fs'

// From the sources the manifest is one folder up, from the build two.
const manifest = [new URL('../package.json', import.meta.url), new URL('../../package.json', import.meta.url)]
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
