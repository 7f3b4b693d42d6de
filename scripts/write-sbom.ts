import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/**
 * Writes the list of packages that an installation of Sluice brings, as package-lock.json has them, to
 * dist/sbom.cdx.json or the file of the first argument.
 */

const root = join(import.meta.dirname, '..')
const file = process.argv[2] ?? join(root, 'dist/sbom.cdx.json')

interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean; readonly version: string }>>
}
interface Component {
  /** The name and the version, such as `zod@4.6.7`. */
  readonly 'bom-ref': string
}
interface Sbom {
  readonly serialNumber: string
  readonly metadata: { readonly timestamp: string; readonly component: Component }
  readonly components: readonly Component[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lock
const FLAGS = ['--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only']
const text = execFileSync('npm', ['sbom', ...FLAGS], { cwd: root, encoding: 'utf8', maxBuffer: 2 ** 26 })
const { serialNumber: _, metadata, components, dependencies, ...rest } = JSON.parse(text) as Sbom

// `npm sbom --omit dev` also omits packages that development needs too, so the lock file decides.
const installed = new Set(
  Object.entries(packages)
    .filter(([, { dev }]) => dev !== true)
    .map(([path, { version }]) => `${path.replace(/^.*node_modules\//, '')}@${version}`),
)
const kept = components.filter((one) => installed.has(one['bom-ref']))
const refs = new Set([metadata.component['bom-ref'], ...kept.map((one) => one['bom-ref'])])
const { timestamp: __, ...lasting } = metadata
const sbom = {
  ...rest,
  // npm takes the name of the folder. Without serial number and time, one lock file makes one text.
  metadata: { ...lasting, component: { ...lasting.component, name: 'sluice' } },
  components: kept,
  dependencies: dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((one) => refs.has(one)) })),
}
mkdirSync(dirname(file), { recursive: true })
writeFileSync(file, `${JSON.stringify(sbom, undefined, 2)}\n`)
