import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { fileText, filesIn, REPOSITORY } from '../helpers/repository.ts'

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
  readonly optionalDependencies?: object
  readonly peerDependencies: Readonly<Record<string, string>>
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>
}
interface LockedPackage {
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>>
}
const manifest = JSON.parse(fileText('package.json')) as Manifest
const { packages } = JSON.parse(fileText('package-lock.json')) as {
  readonly packages: Readonly<Record<string, LockedPackage>>
}

/** Returns the folders of the packages that a package needs, and of those that these need. */
function neededBy(names: readonly string[], folder: string, found = new Set<string>()): ReadonlySet<string> {
  for (const name of names) {
    let place = folder
    while (packages[`${place}node_modules/${name}`] === undefined && place !== '')
      place = place.replace(/(?:^|(?<=\/))node_modules\/(?:@[^/]+\/)?[^/]+\/$/, '')
    const path = `${place}node_modules/${name}`
    if (found.has(path)) continue
    found.add(path)
    neededBy(Object.keys(packages[path]!.dependencies ?? {}), `${path}/`, found)
  }
  return found
}
const needed = [...neededBy(Object.keys(manifest.dependencies), '')]
/** The packages of an installation, as `name@version`. */
const installed = needed.map((path) => `${path.replace(/^.*node_modules\//, '')}@${packages[path]!.version}`)

interface Bom {
  readonly metadata: { readonly component: { readonly name: string; readonly version: string } }
  readonly components: readonly { readonly 'bom-ref': string; readonly version: string }[]
}
interface Vex extends Bom {
  readonly vulnerabilities: readonly {
    readonly id: string
    readonly description: string
    readonly analysis: Readonly<Record<'state' | 'justification' | 'detail', string>>
    readonly affects: readonly { readonly ref: string }[]
    readonly properties: readonly { readonly name: string; readonly value: string }[]
  }[]
}

describe('an installation of the package', () => {
  it('has only what the gateway needs: tracing and the sandbox name their packages', () => {
    expect(manifest.optionalDependencies).toBeUndefined()
    const names = installed.map((one) => one.replace(/@[^@]+$/, ''))
    expect(names).toEqual(expect.arrayContaining(Object.keys(manifest.dependencies)))
    expect(names).not.toContain('oidc-provider')
    for (const name of Object.keys(manifest.peerDependencies))
      expect(manifest.peerDependenciesMeta[name], name).toEqual({ optional: true })
    expect(installed.length).toBeLessThanOrEqual(61)
  })

  it('is described by the SBOM of npm pack: exactly its packages, and the same text for the same lock file', () => {
    const folder = createFolder()
    const write = (name: string): string => {
      const file = join(folder, name)
      execFileSync('npm', ['run', '--silent', 'sbom', '--', file], { cwd: REPOSITORY })
      return readFileSync(file, 'utf8')
    }
    const text = write('sbom.json')
    const { components, metadata } = JSON.parse(text) as Bom
    expect(components.map((one) => one['bom-ref']).toSorted()).toEqual([...new Set(installed)].toSorted())
    expect(metadata.component.name).toBe('sluice')
    expect(write('again.json')).toBe(text)
    expect(fileText('package.json')).toMatch(/"prepack": ".* npm run --silent sbom"/)
  })
})

describe('security/http-proxy.vex.json', () => {
  const vex = JSON.parse(fileText('security/http-proxy.vex.json')) as Vex

  it('is about the version of http-proxy that is installed', () => {
    const ref = `pkg:npm/http-proxy@${manifest.dependencies['http-proxy']}`
    expect(vex.components.map((one) => one['bom-ref'])).toEqual([ref])
    for (const { affects } of vex.vulnerabilities) expect(affects).toEqual([{ ref }])
  })

  it('has every weakness that docs/security.md lists, and how it is avoided', () => {
    const [, section = ''] = fileText('docs/security.md').split('\n### http-proxy\n')
    const rows = [...section.split('\n## ')[0]!.matchAll(/^\| (?!http-proxy|---)(.+) \| (.+) \|$/gm)]
    expect(vex.vulnerabilities).toHaveLength(rows.length)
    for (const { analysis } of vex.vulnerabilities) {
      expect(analysis.state).toBe('not_affected')
      expect(analysis.justification).toMatch(/^(?:code_not_reachable|protected_by_mitigating_control)$/)
      expect(analysis.detail).toMatch(/^[A-Z].*\.$/)
    }
    const known = rows.flatMap(([, weakness]) => weakness!.match(/CVE-[\d-]+/g) ?? [])
    expect(vex.vulnerabilities.map(({ id }) => id)).toEqual(expect.arrayContaining(known))
  })

  it.each(vex.vulnerabilities)('names an existing test that shows how $id is avoided', ({ properties }) => {
    expect(properties.length).toBeGreaterThan(0)
    for (const { name, value } of properties) {
      expect(name).toBe('sluice:test')
      const [, file, title] = /^(test\/[\w/-]+\.test\.ts): (.+)$/.exec(value)!
      expect(fileText(file!)).toContain(`'${title}',`)
    }
  })
})

it('every action of a workflow is named by its commit, with its version for readers', () => {
  const uses = filesIn('.github/workflows', '.yml').flatMap((path) => [
    ...fileText(path).matchAll(/^ *(?:- )?uses: (?!\.\/)(.+)$/gm),
  ])
  expect(uses.length).toBeGreaterThan(10)
  const commits = new Map<string, string>()
  for (const [, use] of uses) {
    expect(use).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/)
    const [name = '', commit = ''] = use!.split('@')
    expect(commits.get(name) ?? commit, name).toBe(commit)
    commits.set(name, commit)
  }
})

it('the image contains the licence, and gets its commit from the release', () => {
  const dockerfile = fileText('Dockerfile')
  expect(dockerfile).toMatch(/^COPY LICENSE \.\/$/m)
  const [build = '', final = ''] = dockerfile.split(/^FROM (?!--platform)/m)
  expect(build).toMatch(/^ARG REVISION=unknown$[\s\S]*^RUN npm run build /m)
  expect(final).toMatch(/^ARG REVISION=unknown$/m)
  expect(fileText('.github/workflows/release.yml')).toMatch(/^ +REVISION=\$\{\{ github\.sha \}\}$/m)
})
