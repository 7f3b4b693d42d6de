import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { decideAction } from '../../src/downstream/request-fields.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, yaml } from '../helpers/gateway.ts'
import { unknownFields, wrongValues } from '../helpers/kubernetes-schemas.ts'
import { kustomize, type Manifest } from '../helpers/kustomize.ts'
import { serving } from '../helpers/process.ts'
import { FROM_PROXY } from '../helpers/proxy-fields.ts'
import { codeBlocks, fileText, filesIn, REPOSITORY } from '../helpers/repository.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { until } from '../helpers/wait.ts'

const FOLDER = 'deploy/kubernetes'
const SHIPPED = fileText(`${FOLDER}/kustomization.yaml`)
const COMPONENTS = [...SHIPPED.matchAll(/^# {3}- (components\/.*)$/gm)].map(([, path]) => path!)
/** The file with these components switched on, as its comments say. */
const using = (components: readonly string[]): string =>
  SHIPPED.replace(/^# components:\n(?:# {3}- .*\n)+/m, (lines) =>
    lines
      .replace('# components', 'components')
      .replaceAll(/^# {3}(- (.*))/gm, (line, item: string, path: string) =>
        components.includes(path) ? item : line,
      ),
  )
const find = (manifests: readonly Manifest[], kind: string): Manifest =>
  manifests.find((one) => one.kind === kind)

const base = kustomize(FOLDER)
const all = kustomize(FOLDER, using(COMPONENTS))
const pod = find(base, 'Deployment').spec.template.spec
const [container] = pod.containers
const policy = find(base, 'NetworkPolicy').spec
const route = find(all, 'HTTPRoute').spec

const SECRETS = createFolder()
for (const name of ['admin-token', 'redis-password'])
  writeFileSync(join(SECRETS, name), 'a-secret-of-the-test')
/** Loads sluice.yaml, edited, with secrets and a state of the test. */
async function load(edit = (text: string): string => text) {
  const file = join(createFolder(), 'sluice.yaml')
  writeFileSync(file, edit(fileText(`${FOLDER}/sluice.yaml`)))
  return (await loadConfig({ file, env: { SECRETS, STATE_DIRECTORY: SECRETS } })).config
}
const config = await load()

describe('deploy/kubernetes/', () => {
  it('has only fields and values of the schemas, with each single component and with all', () => {
    const each = COMPONENTS.map((one) => kustomize(FOLDER, using([one])))
    const byHand = parse(fileText(`${FOLDER}/ingress-nginx.yaml`))
    const manifests = [...base, ...all, ...each.flat(), byHand]
    expect(manifests.map(wrongValues).filter((one) => one !== undefined)).toEqual([])
    const texts = [...new Set(manifests.map((one) => JSON.stringify(one)))]
    expect(unknownFields(texts.map((one) => JSON.parse(one)))).toEqual([])
  })

  it('is checked by schemas that find unknown fields and wrong values', () => {
    const broken = structuredClone(all) as Manifest[]
    find(broken, 'Deployment').spec.template.spec.containers[0].readinesProbe = {}
    const { requestHeaderModifier } = find(broken, 'HTTPRoute').spec.rules[0].filters[0]
    requestHeaderModifier.removed = []
    find(broken, 'PodMonitor').spec.podMetricsEndpoints[0].intervall = '15s'
    const found = unknownFields(broken).join('\n')
    for (const field of ['readinesProbe', 'removed', 'intervall']) expect(found).toContain(field)
    requestHeaderModifier.remove.push('One-Too-Many')
    expect(wrongValues(find(broken, 'HTTPRoute'))).toMatch(/must NOT have more than 16 items/)
  })

  it('applies every file, by the base, a component or the comments of the file', () => {
    const folders = ['', ...COMPONENTS.map((path) => `${path}/`)]
    const used = folders.flatMap((folder) => {
      const file = `${folder}kustomization.yaml`
      const { resources = [], patches = [], configMapGenerator = [] } = parse(fileText(`${FOLDER}/${file}`))
      const files = [resources, patches.flatMap(({ path = [] }) => path), configMapGenerator[0]?.files ?? []]
      return [file, ...files.flat().map((name: string) => folder + name)]
    })
    const files = filesIn(FOLDER, '').filter((path) => /\.\w+$/.test(path))
    const expected = [...used, 'ingress-nginx.yaml', 'README.md'].map((name) => `${FOLDER}/${name}`)
    expect(new Set(files)).toEqual(new Set(expected))
    expect(parse(SHIPPED).generatorOptions.disableNameSuffixHash).toBe(true)
  })

  it('says at the top of each file that it has not run on a cluster', () => {
    for (const path of filesIn(FOLDER, '.yaml')) {
      const top = fileText(path).split('\n').slice(0, 3)
      expect(top, path).toContain('# Never run on a cluster; README.md says what the tests check.')
    }
    expect(fileText(`${FOLDER}/README.md`).split('\n').slice(0, 4).join(' ')).toMatch(
      /never run on a cluster/i,
    )
  })

  it('reads each secret from a file of the Secret that the comment creates', () => {
    const volume = pod.volumes.find(({ name }: Manifest) => name === 'secrets')
    const [{ secret }] = volume.projected.sources
    const paths = secret.items.map(({ path }: Manifest) => path)
    const mount = container.volumeMounts.find(({ name }: Manifest) => name === 'secrets')
    const text = fileText(`${FOLDER}/sluice.yaml`).replaceAll(/^ *#.*$/gm, '')
    const read = [...text.matchAll(/file:\$\{SECRETS:-(.*?)\}\/([\w-]+)/g)]
    expect(read.map(([, folder]) => folder)).toEqual(read.map(() => mount.mountPath))
    expect(read.map(([, , name]) => name)).toEqual(paths)
    const [, created] = /create secret generic (\w+)/.exec(SHIPPED)!
    expect(secret.name).toBe(created)
    const keys = [...SHIPPED.matchAll(/--from-(?:literal|file)=([\w-]+)=/g)].map(([, key]) => key)
    expect(keys).toEqual(secret.items.map(({ key }: Manifest) => key))
    expect(container).not.toHaveProperty('env')
    expect(container).not.toHaveProperty('envFrom')
    // Read by the group: the files belong to root.
    expect(volume.projected.defaultMode).toBe(0o440)
    expect(pod.securityContext).toMatchObject({ fsGroup: 1000, fsGroupChangePolicy: 'OnRootMismatch' })
  })

  it('names existing ports, labels and volumes', () => {
    const ports = Object.fromEntries(container.ports.map((one: Manifest) => [one.name, one.containerPort]))
    expect(ports).toEqual({ http: config.listen.port, admin: config.admin.port })
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(container[probe].httpGet.port).toBe('admin')
    const { labels } = find(base, 'Deployment').spec.template.metadata
    const service = find(base, 'Service').spec
    expect([service.selector, service.ports[0].targetPort]).toEqual([labels, 'http'])
    for (const kind of ['Deployment', 'PodDisruptionBudget', 'PodMonitor'])
      expect(find(all, kind).spec.selector.matchLabels).toEqual(labels)
    expect(policy.podSelector.matchLabels).toEqual(labels)
    for (const { volumes, containers } of [pod, find(all, 'Deployment').spec.template.spec])
      expect(new Set(volumes.map(({ name }: Manifest) => name))).toEqual(
        new Set(containers[0].volumeMounts.map(({ name }: Manifest) => name)),
      )
    expect(container.image).toMatch(/^registry\.example\.com\/sluice@sha256:[0-9a-f]{64}$/)
  })

  it('stops pods after their drain', () => {
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(config.drainTimeoutMs / 1000)
  })

  it('lets pods reach Redis and the upstreams', () => {
    const open = (policy.egress as Manifest[]).flatMap(({ ports }) => ports)
    const { store } = parse(fileText(`${FOLDER}/sluice.yaml`))
    const needed = [store.redis.url as string, ...config.upstreams.flatMap(({ origins }) => origins)].map(
      (one) => new URL(one).port,
    )
    for (const port of ['53', ...needed].map(Number)) {
      const isOpen = (one: Manifest) => one.port <= port && port <= (one.endPort ?? one.port)
      expect(open.some(isOpen), String(port)).toBe(true)
    }
  })

  it('lets only the pods of the controller in front connect to the port for callers', () => {
    const { from, ports } = find(all, 'NetworkPolicy').spec.ingress[0]
    expect([ports, policy.ingress[0].ports]).toEqual([[{ port: 'http' }], [{ port: 'http' }]])
    for (const sources of [policy.ingress[0].from, from])
      expect(sources).toEqual([
        {
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': expect.any(String) } },
          podSelector: { matchLabels: { 'app.kubernetes.io/name': expect.any(String) } },
        },
      ])
    expect(from).not.toEqual(policy.ingress[0].from)
    expect(config.listen.trustedProxies).toEqual([])
  })
})

describe('components/', () => {
  it('gateway-api routes the hosts of sluice.yaml to the Service, without fields that only a proxy may set', () => {
    const service = find(base, 'Service')
    expect(route.hostnames).toEqual(config.listen.hosts)
    const [{ backendRefs, filters }] = route.rules
    expect(backendRefs).toEqual([{ name: service.metadata.name, port: service.spec.ports[0].port }])
    expect(route.parentRefs).toEqual([{ name: find(all, 'Gateway').metadata.name }])
    const removed = filters[0].requestHeaderModifier.remove.map((name: string) => name.toLowerCase())
    expect(removed).toEqual(
      expect.arrayContaining(['forwarded', config.listen.clientCertificate.toLowerCase()]),
    )
    expect(removed.map(decideAction)).toEqual(removed.map(() => 'from-proxy'))
    // Which components/haproxy-ingress removes, too: proxies.test.ts.
    expect(FROM_PROXY).toEqual(expect.arrayContaining(removed))
  })

  it('prometheus-operator scrapes the metrics as the job of the alerts, once', () => {
    const { jobLabel, podMetricsEndpoints } = find(all, 'PodMonitor').spec
    const { labels, annotations } = find(all, 'Deployment').spec.template.metadata
    expect(fileText('config/prometheus/alerts.yaml')).toContain(`{job="${labels[jobLabel]}"}`)
    expect(podMetricsEndpoints).toMatchObject([{ port: 'admin', path: '/metrics' }])
    expect(annotations).toBeUndefined()
  })

  it('priority evicts no other pod', () => {
    const { metadata, preemptionPolicy } = find(all, 'PriorityClass')
    expect(find(all, 'Deployment').spec.template.spec.priorityClassName).toBe(metadata.name)
    expect(preemptionPolicy).toBe('Never')
  })

  it('admin-tls mounts the certificate where sluice.yaml reads it, and asks by https', async () => {
    const [tls] = find(all, 'Deployment').spec.template.spec.containers
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(tls[probe].httpGet.scheme).toBe('HTTPS')
    const { mountPath } = tls.volumeMounts.find(({ name }: Manifest) => name === 'admin-tls')
    const certificate = makeCertificate()
    writeFileSync(join(SECRETS, 'tls.crt'), certificate.cert)
    writeFileSync(join(SECRETS, 'tls.key'), certificate.key)
    writeFileSync(join(SECRETS, 'support-token'), 'another-secret-of-the-test')
    const switchedOn = await load((text) => {
      const on = text
        .replace(/^ {2}# (tls: .*)$/m, '  $1')
        .replace(/^ {2}# (tokens:)\n {2}# {3}(- .*)$/m, '  $1\n    $2')
      expect(on).toContain(`${mountPath}/tls.crt`)
      return on.replaceAll(`${mountPath}/`, `${SECRETS}/`)
    })
    expect(switchedOn.admin.tls).toBeDefined()
    expect(switchedOn.admin.tokens).toMatchObject([{ name: 'support', may: 'read' }])
  })

  it('teams mounts the files of teams where sluice.yaml includes them', async () => {
    const { volumes, containers } = find(all, 'Deployment').spec.template.spec
    const { sources } = volumes.find(({ name }: Manifest) => name === 'teams').projected
    const { mountPath } = containers[0].volumeMounts.find(({ name }: Manifest) => name === 'teams')
    const folder = createFolder()
    for (const name of ['sluice', 'teams']) mkdirSync(join(folder, name))
    const [{ configMap }] = sources
    const team = codeBlocks(fileText('docs/operating.md'), 'yml').find((one) => one.includes('prefix: /'))
    writeFileSync(join(folder, 'teams', configMap.items[0].path), team!)
    const text = fileText(`${FOLDER}/sluice.yaml`)
    const [line, files] = /(?<=^# )include: (.*)$/m.exec(text)!
    expect(resolve('/etc/sluice', files!)).toBe(`${mountPath}/*.yaml`)
    const shared = 'limits:\n  api: { per: [client], limit: 10, window: 1s }'
    const file = join(folder, 'sluice/sluice.yaml')
    writeFileSync(file, text.replace(`# ${line}`, line).replace('limits:', shared))
    const { config } = await loadConfig({ file, env: { SECRETS, STATE_DIRECTORY: SECRETS } })
    expect(config.limits.map(({ name }) => name)).toContain('payments/requests')
  })

  it('the overlay of README.md has all components', () => {
    const [overlay] = codeBlocks(fileText(`${FOLDER}/README.md`), 'yaml')
    const { resources, components, namespace } = parse(overlay!)
    expect(components).toEqual(COMPONENTS.map((path) => `${resources[0]}/${path}`))
    expect(namespace).toBe('sluice')
  })
})

const kubectl = spawnSync('kubectl', ['version', '--client'], { encoding: 'utf8' })
it.runIf(/Kustomize Version: v[5-9]/.test(kubectl.stdout ?? ''))(
  'kubectl kustomize builds the same manifests',
  () => {
    const folder = createFolder()
    cpSync(join(REPOSITORY, FOLDER), folder, { recursive: true })
    const byName = (manifests: readonly Manifest[]) =>
      Object.fromEntries(manifests.map((one) => [`${one.kind} ${one.metadata.name}`, one]))
    for (const [text, manifests] of [
      [SHIPPED, base],
      [using(COMPONENTS), all],
    ] as const) {
      writeFileSync(join(folder, 'kustomization.yaml'), text)
      const { stdout, stderr } = spawnSync('kubectl', ['kustomize', folder], { encoding: 'utf8' })
      expect(stderr).toBe('')
      const built = parseAllDocuments(stdout).map((one) => one.toJS())
      expect(byName(built)).toEqual(byName(manifests))
    }
  },
)

it('a secret is read again through the symbolic links of a mounted Secret, without a restart', async () => {
  const folder = createFolder()
  /** Replaces the folder of the files by a new version, as the kubelet does. */
  const mount = (version: string, token: string) => {
    mkdirSync(join(folder, version))
    writeFileSync(join(folder, version, 'admin-token'), token)
    symlinkSync(version, join(folder, '..data_next'))
    renameSync(join(folder, '..data_next'), join(folder, '..data'))
  }
  mount('..1', 'the-old-token-of-24-chars')
  symlinkSync('..data/admin-token', join(folder, 'admin-token'))
  const admin = { port: 0, token: `file:${join(folder, 'admin-token')}` }
  const gateway = await serving(yaml({ data: 'http://127.0.0.1:9', admin }))
  const status = async (token: string) =>
    (await call(gateway.adminPort, { path: '/overrides', token })).status
  expect(await status('the-old-token-of-24-chars')).toBe(200)
  mount('..2', 'the-new-token-of-24-chars')
  await until('it is renewed', () => gateway.lines().some(({ msg }) => msg === 'secrets renewed'))
  expect(await status('the-new-token-of-24-chars')).toBe(200)
  expect(await status('the-old-token-of-24-chars')).toBe(401)
})
