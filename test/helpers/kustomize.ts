import { join } from 'node:path'
import { parse, parseAllDocuments } from 'yaml'
import { fileText } from './repository.ts'

// oxlint-disable-next-line typescript/no-explicit-any
export type Manifest = any

interface Target {
  readonly kind: string
  readonly name: string
}

interface Kustomization {
  readonly namespace?: string
  readonly resources?: readonly string[]
  readonly components?: readonly string[]
  readonly patches?: readonly { readonly path?: string; readonly patch?: string; readonly target?: Target }[]
  readonly configMapGenerator?: readonly { readonly name: string; readonly files: readonly string[] }[]
  readonly images?: readonly { readonly name: string; readonly newName: string; readonly digest: string }[]
}

interface Operation {
  readonly op: 'add' | 'replace' | 'remove'
  readonly path: string
  readonly value?: unknown
}

const CLUSTER_SCOPED = new Set(['Namespace', 'PriorityClass'])

/**
 * Builds a folder of the repository as `kubectl kustomize` does, with the text of its kustomization.yaml, as far
 * as deploy/kubernetes uses that language: patches by JSON operations, or by files that change only mappings.
 */
export function kustomize(
  folder: string,
  text = fileText(`${folder}/kustomization.yaml`),
): readonly Manifest[] {
  const manifests: Manifest[] = []
  accumulate(folder, parse(text) as Kustomization, manifests)
  return manifests
}

function accumulate(folder: string, kustomization: Kustomization, manifests: Manifest[]): void {
  const { namespace, resources = [], components = [], patches = [] } = kustomization
  const { configMapGenerator = [], images = [] } = kustomization
  const read = (path: string): Manifest[] =>
    parseAllDocuments(fileText(join(folder, path))).map((one) => one.toJS())
  manifests.push(...resources.flatMap(read))
  for (const { name, files } of configMapGenerator) {
    const data = Object.fromEntries(files.map((file) => [file, fileText(join(folder, file))]))
    manifests.push({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data })
  }
  for (const path of components) {
    const component = join(folder, path)
    accumulate(component, parse(fileText(`${component}/kustomization.yaml`)) as Kustomization, manifests)
  }
  for (const { path, patch, target } of patches) {
    const [merged] = path === undefined ? [] : read(path)
    const found = find(manifests, target ?? { kind: merged.kind, name: merged.metadata.name })
    if (merged !== undefined) merge(found, merged)
    for (const operation of patch === undefined ? [] : (parse(patch) as Operation[]))
      operate(found, operation)
  }
  for (const manifest of manifests) {
    if (namespace !== undefined && !CLUSTER_SCOPED.has(manifest.kind)) manifest.metadata.namespace = namespace
    for (const container of manifest.spec?.template?.spec?.containers ?? []) {
      const image = images.find(({ name }) => name === container.image)
      if (image !== undefined) container.image = `${image.newName}@${image.digest}`
    }
  }
}

function find(manifests: readonly Manifest[], { kind, name }: Target): Manifest {
  const found = manifests.find((one) => one.kind === kind && one.metadata.name === name)
  if (found === undefined) throw new Error(`nothing to patch: ${kind} ${name}`)
  return found
}

function merge(into: Manifest, from: Manifest): void {
  for (const [key, value] of Object.entries(from)) {
    if (Array.isArray(value)) throw new Error(`a patch by a file changes the list ${key}`)
    if (typeof value === 'object' && value !== null) merge((into[key] ??= {}), value)
    else into[key] = value
  }
}

/** Applies an operation of a JSON Patch (RFC 6902) whose path has no escapes. */
function operate(manifest: Manifest, { op, path, value }: Operation): void {
  const keys = path.split('/').slice(1)
  const last = keys.pop()!
  const parent = keys.reduce((node, key) => node[key], manifest)
  if (op !== 'add' && !Object.hasOwn(parent, last)) throw new Error(`nothing to ${op}: ${path}`)
  if (op === 'remove') delete parent[last]
  else if (Array.isArray(parent) && last === '-') parent.push(value)
  else if (Array.isArray(parent) && op === 'add') parent.splice(Number(last), 0, value)
  else parent[last] = value
}
