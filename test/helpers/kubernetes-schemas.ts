import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Gateway } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/Gateway'
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute'
import { PodMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor'
import { Deployment } from 'kubernetes-models/apps/v1/Deployment'
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler'
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1/NetworkPolicy'
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget'
import { PriorityClass } from 'kubernetes-models/scheduling.k8s.io/v1/PriorityClass'
import { ConfigMap } from 'kubernetes-models/v1/ConfigMap'
import { Namespace } from 'kubernetes-models/v1/Namespace'
import { Service } from 'kubernetes-models/v1/Service'
import { createFolder } from './folder.ts'
import type { Manifest } from './kustomize.ts'
import { REPOSITORY } from './repository.ts'

const KUBERNETES = [
  ConfigMap,
  Deployment,
  HorizontalPodAutoscaler,
  Namespace,
  NetworkPolicy,
  PodDisruptionBudget,
  PriorityClass,
  Service,
]
const PACKAGES = [
  ['kubernetes-models', KUBERNETES],
  ['@kubernetes-models/gateway-api', [Gateway, HTTPRoute]],
  ['@kubernetes-models/prometheus-operator', [PodMonitor]],
] as const

/** The model of a kind, and the file of its type. */
function modelOf({ apiVersion, kind }: Manifest) {
  for (const [name, models] of PACKAGES)
    for (const model of models)
      if (model.apiVersion === apiVersion && model.kind === kind)
        return { model, file: join(REPOSITORY, 'node_modules', name, apiVersion, kind) }
  throw new Error(`no schema of ${apiVersion} ${kind}`)
}

/** Returns what the schemas of Kubernetes, of the Gateway API and of the Prometheus Operator say against the values of a manifest. */
export function wrongValues(manifest: Manifest): string | undefined {
  try {
    // oxlint-disable-next-line typescript/no-unsafe-argument
    new (modelOf(manifest).model)(structuredClone(manifest)).validate()
    return undefined
  } catch (error) {
    return `${manifest.kind}: ${(error as Error).message}`
  }
}

const FLAGS = '--noEmit --strict --skipLibCheck --target es2023 --module preserve --types'.split(' ')

/** Returns the errors of the compiler about fields that the types of the manifests do not have, or that are missing; none if all is well. */
export function unknownFields(manifests: readonly Manifest[]): readonly string[] {
  const text = manifests.map((manifest, i) => {
    const { file } = modelOf(manifest)
    return `import type { I${manifest.kind} as Type${i} } from ${JSON.stringify(file)}
export const manifest${i}: Type${i} = ${JSON.stringify(manifest, null, 1)}`
  })
  const folder = createFolder()
  writeFileSync(join(folder, 'manifests.ts'), text.join('\n'))
  const compiler = join(REPOSITORY, 'node_modules/typescript/bin/tsc')
  const args = [compiler, ...FLAGS, 'node', '--typeRoots', join(REPOSITORY, 'node_modules/@types')]
  const { status, stdout, stderr } = spawnSync(process.execPath, [...args, 'manifests.ts'], {
    cwd: folder,
    encoding: 'utf8',
  })
  if (stderr !== '') throw new Error(stderr)
  const errors = stdout.split('\n').filter((line) => line !== '')
  if (status !== 0 && errors.length === 0) throw new Error(`the compiler failed: ${status}`)
  return errors
}
