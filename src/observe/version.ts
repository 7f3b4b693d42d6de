import { existsSync, readFileSync } from 'node:fs'

/** Two folders up from the sources, three from the build. */
const inSources = new URL('../../package.json', import.meta.url)
const manifest = existsSync(inSources) ? inSources : new URL('../../../package.json', import.meta.url)

export const { version: VERSION } = JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }
