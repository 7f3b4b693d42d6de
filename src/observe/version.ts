import { existsSync, readFileSync } from 'node:fs'

/** From the sources the manifest is two folders up, from the build three. */
const PATHS = ['../../package.json', '../../../package.json'].map((path) => new URL(path, import.meta.url))
const manifest = readFileSync(
  PATHS.find((path) => existsSync(path))!,
  'utf8',
)

/** The version of this Sluice, as in package.json. */
export const { version: VERSION } = JSON.parse(manifest) as { readonly version: string }
