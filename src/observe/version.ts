import { existsSync, readFileSync } from 'node:fs'

/** Two folders up from the sources, three from the build. */
const [inSources, inBuild] = ['../../', '../../../'].map(
  (up) => new URL(`${up}package.json`, import.meta.url),
)
const manifest = readFileSync(existsSync(inSources!) ? inSources! : inBuild!, 'utf8')

export const { version: VERSION } = JSON.parse(manifest) as { readonly version: string }
