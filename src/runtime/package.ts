import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** Two folders up from the sources, three from the build. */
const inSources = new URL('../../', import.meta.url)
/** True if these are the sources, not their build. */
export const IS_SOURCE = existsSync(new URL('package.json', inSources))
const root = IS_SOURCE ? inSources : new URL('../../../', import.meta.url)

export const packageFile = (path: string): string => fileURLToPath(new URL(path, root))

const manifest = readFileSync(packageFile('package.json'), 'utf8')
/** The version, and the packages that are installed only by those who trace or run the sandbox, with their versions. */
export const { version: VERSION, peerDependencies: PEERS } = JSON.parse(manifest) as {
  readonly version: string
  readonly peerDependencies: Readonly<Record<string, string>>
}
