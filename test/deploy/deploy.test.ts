import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { FORWARD_AUTH_PROXIES } from '../../src/downstream/forward-auth.ts'
import { createRequestFields } from '../../src/downstream/request-fields.ts'
import { sluice } from '../commands/run.ts'
import { createFolder } from '../helpers/folder.ts'
import { FROM_PROXY } from '../helpers/proxy-fields.ts'
import { fileText, filesIn, REPOSITORY } from '../helpers/repository.ts'

const { actionOf } = createRequestFields({
  requestId: 'x-request-id',
  counted: [],
  identity: [],
  callers: [],
})

/** Names in deploy/ and the Dockerfile must exist, and must agree with the gateway and with each other. */

// oxlint-disable-next-line typescript/no-explicit-any
type Yaml = any

function parsed(path: string): Yaml {
  const [document, ...more] = parseAllDocuments(fileText(path), { merge: true })
  if (document === undefined || !('errors' in document) || more.length > 0)
    throw new Error(`not one: ${path}`)
  expect([...document.errors, ...document.warnings], path).toEqual([])
  return document.toJS()
}
const variablesOf = (text: string): Set<string> =>
  new Set([...text.matchAll(/(?<![$])\$\{(\w+)(?!:?-|\w)/g)].map(([, name]) => name!))
const assigned = (text: string): Record<string, string> =>
  Object.fromEntries(
    [...text.matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [name!, value!] as const),
  )
/** Seconds of a duration such as `40s` or `1m`. */
const seconds = (text: string): number => Number.parseInt(text) * (text.endsWith('m') ? 60 : 1)

const dockerfile = fileText('Dockerfile')
const compose = parsed('deploy/compose.yaml')
const services = compose.services as Record<string, Yaml>
const dotEnv = assigned(fileText('deploy/.env.example'))
const networksOf = (name: string): string[] => {
  const { networks } = services[name]
  return Array.isArray(networks) ? networks : Object.keys(networks)
}
const haproxy = fileText('deploy/haproxy.cfg')
const unit = fileText('deploy/systemd/sluice.service')
const k8s = (name: string): Yaml => parsed(`deploy/kubernetes/${name}.yaml`)
const pod = k8s('deployment').spec.template.spec
const [container] = pod.containers
const SECRETS = Object.keys(dotEnv).filter((name) => /TOKEN|PASSWORD|SECRET/.test(name))
const filled = { ...dotEnv, ...Object.fromEntries(SECRETS.map((name) => [name, 'a-secret-of-the-test'])) }
/** A folder like that of the Secret in pods. */
const K8S_SECRETS = createFolder()
for (const name of ['admin-token', 'redis-password'])
  writeFileSync(join(K8S_SECRETS, name), 'a-secret-of-the-test')
// The folder of store.overridesFile, which exists on the machines of the set-ups.
const STATE_DIRECTORY = createFolder()
const load = async (path: string, env: Record<string, string | undefined>) =>
  (await loadConfig({ file: join(REPOSITORY, path), env: { ...env, STATE_DIRECTORY } })).config
const gateway = await load('deploy/gateway/sluice.yaml', filled)
const inPods = await load('deploy/kubernetes/sluice.yaml', { SECRETS: K8S_SECRETS })

/** True if it is a command line of the gateway, flags and all. */
async function isCommandLine(words: readonly string[]): Promise<boolean> {
  const flags = words.filter((word) => word.startsWith('--'))
  const { code, stdout } = await sluice([words[0]!, '--help'])
  return code === 0 && flags.every((flag) => stdout.includes(`${flag} `))
}

describe('deploy/', () => {
  it('deploy/ has YAML that parses', () => {
    for (const path of filesIn('deploy', '.yaml')) expect(parsed(path), path).toBeTypeOf('object')
  })

  it('deploy/ has configurations that load with a warning only of keys that are read without TLS', () => {
    for (const { warnings } of [gateway, inPods])
      expect(warnings.map(({ path }) => path)).toEqual(['tokens.jwks'])
  })

  it('deploy/ has a configuration that does not load if both hosts are the same', async () => {
    const same = { ...filled, API_HOST: filled['IDENTITY_HOST'] }
    await expect(load('deploy/gateway/sluice.yaml', same)).rejects.toThrow(
      /never matches: its requests match "identity/,
    )
  })
})

describe('Dockerfile', () => {
  it('copies only existing files', () => {
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, paths]) =>
      paths!.split(' '),
    )
    expect(copied.length).toBeGreaterThan(5)
    expect(copied.filter((path) => !existsSync(join(REPOSITORY, path)))).toEqual([])
  })

  it('Dockerfile has an exact version of Node.js by its digest, the same in both stages, and builds on the architecture of the machine', () => {
    const [build, final, ...more] = [...dockerfile.matchAll(/^FROM (.+)$/gm)].map(([, from]) => from)
    expect(final).toMatch(/^node:24\.\d+\.\d+-bookworm-slim@sha256:[0-9a-f]{64}$/)
    expect({ build, more }).toEqual({ build: `--platform=$BUILDPLATFORM ${final} AS build`, more: [] })
  })

  it('calls existing commands, as a user other than root', async () => {
    const [, command] = /^CMD (.*)$/m.exec(dockerfile)!
    expect(await isCommandLine(JSON.parse(command!) as string[])).toBe(true)
    const [, check] = /^HEALTHCHECK .* CMD (.*)$/m.exec(dockerfile)!
    const [program, ...words] = JSON.parse(check!) as string[]
    expect(program).toBe('sluice')
    expect(await isCommandLine(words)).toBe(true)
    expect(await isCommandLine(container.args)).toBe(true)
    expect(/^USER (\d+):/m.exec(dockerfile)![1]).toBe(String(pod.securityContext.runAsUser))
  })

  it('exposes the default ports', async () => {
    const { listen, admin } = await load('config/sluice.yaml', {})
    expect(/^EXPOSE (.*)$/m.exec(dockerfile)![1]).toBe(`${listen.port} ${admin.port}`)
  })
})

describe('deploy/compose.yaml', () => {
  it('mounts only existing files', () => {
    const sources = Object.values(services).flatMap(({ volumes = [] }) =>
      (volumes as string[]).map((volume) => volume.split(':')[0]!),
    )
    const isThere = (source: string): boolean =>
      source.startsWith('.')
        ? existsSync(join(REPOSITORY, 'deploy', source))
        : Object.hasOwn(compose.volumes as object, source)
    expect(sources.filter((source) => !isThere(source))).toEqual([])
  })

  it('mounts the folder of the configuration where the image reads it', () => {
    const [, folder] = /SLUICE_CONFIG=(\S+)\/sluice\.yaml/.exec(dockerfile)!
    expect(services['gateway-1'].volumes).toContain(`./gateway:${folder}:ro`)
    expect(container.volumeMounts).toContainEqual({ name: 'config', mountPath: folder, readOnly: true })
  })

  it('keeps the file of the overrides in a volume that the gateways may write', () => {
    for (const path of ['deploy/gateway/sluice.yaml', 'deploy/kubernetes/sluice.yaml']) {
      const { overridesFile } = parsed(path).store as Record<string, string>
      expect(overridesFile).toBe('${STATE_DIRECTORY:-/var/lib/sluice}/overrides.json')
    }
    const [user] = /(?<=^USER )\d+/m.exec(dockerfile)!
    expect(dockerfile).toContain(`install --directory --owner=${user} --group=${user} /var/lib/sluice\n`)
    expect(services['gateway-1'].volumes).toContain('overrides:/var/lib/sluice')
    expect(container.volumeMounts).toContainEqual({ name: 'state', mountPath: '/var/lib/sluice' })
    expect(unit).toMatch(/^StateDirectory=sluice$/m)
  })

  it('gives the gateways every variable of their configuration, from .env', () => {
    const needed = variablesOf(fileText('deploy/gateway/sluice.yaml'))
    expect(new Set(Object.keys(services['gateway-1'].environment))).toEqual(needed)
    const used = [...fileText('deploy/compose.yaml').matchAll(/(?<!\$)\$\{(\w+)/g)].map(([, name]) => name!)
    expect(new Set([...used, 'VERSION'])).toEqual(new Set([...Object.keys(dotEnv), 'VERSION']))
  })

  it('deploy/compose.yaml has no default for a secret, and no port open to others', () => {
    expect(SECRETS).toEqual(['ADMIN_TOKEN', 'REDIS_PASSWORD', 'GRAFANA_PASSWORD'])
    for (const name of SECRETS) {
      expect(dotEnv[name]).toBe('')
      const uses = [
        ...fileText('deploy/compose.yaml').matchAll(new RegExp(`(?<!\\$)\\$\\{${name}[^}]*\\}`, 'g')),
      ]
      for (const [use] of uses) expect(use).toBe(`\${${name}:?set it in .env}`)
    }
    for (const { ports = [] } of Object.values(services))
      for (const port of ports) expect(port).toMatch(/^(?:127\.0\.0\.1|\$\{BIND:-127\.0\.0\.1\}):/)
  })

  it('runs everything without capabilities, on a read-only REPOSITORY, with a health check', () => {
    for (const [name, service] of Object.entries(services)) {
      expect(service, name).toMatchObject({ read_only: true, cap_drop: ['ALL'] })
      if (!name.startsWith('gateway')) expect(service.healthcheck, name).toHaveProperty('test')
    }
  })

  it('configures Redis to keep all counters, without eviction', () => {
    const command = (services['redis'].command as string[]).join(' ')
    for (const flag of ['--maxmemory-policy noeviction', '--appendonly yes', '--requirepass'])
      expect(command).toContain(flag)
  })

  it('stops gateways after their drain, whose start the balancer detects', () => {
    expect(seconds(services['gateway-1'].stop_grace_period)).toBeGreaterThan(gateway.drainTimeoutMs / 1000)
    const [, inter, fall] = /check port \d+ inter (\d+s) fall (\d+)/.exec(haproxy)!
    expect(gateway.drainTimeoutMs / 4000).toBeGreaterThan(seconds(inter!) * (Number(fall) + 1))
  })

  it('balances between the gateways, on their ports, from a network that they trust', () => {
    const gateways = Object.keys(services).filter((name) => name.startsWith('gateway-'))
    const { listen, admin } = gateway
    expect([...haproxy.matchAll(/^ {2}server (\S+) (\S+)$/gm)].map(([, ...words]) => words)).toEqual(
      gateways.map((name) => [name, `${name}:${listen.port}`]),
    )
    expect(haproxy).toContain(`check port ${admin.port} `)
    expect(listen.trustedProxies).toEqual([compose.networks.edge.ipam.config[0].subnet])
    const onEdge = Object.keys(services).filter((name) => networksOf(name).includes('edge'))
    expect(onEdge).toEqual([...gateways, 'balancer'])
  })
})

const PROMETHEUS = 'config/prometheus/prometheus.yaml'
describe.runIf(existsSync(join(REPOSITORY, PROMETHEUS)))('config/prometheus/prometheus.yaml', () => {
  it('scrapes the gateways of deploy/compose.yaml by their names there', () => {
    const [{ static_configs: configs }] = parsed(PROMETHEUS).scrape_configs
    const names = Object.values(services).flatMap(({ networks }) => networks.metrics?.aliases ?? [])
    expect(configs[0].targets).toEqual(names.map((name) => `${name}:${gateway.admin.port}`))
  })

  it.each(['compose.yaml', 'compose.demo.yaml'])(
    'is read in deploy/%s by a Prometheus that keeps exemplars',
    (file) => {
      const { services } = parsed(`deploy/${file}`)
      const { command } = services.prometheus
      expect(command).toContain('--enable-feature=exemplar-storage')
    },
  )
})

describe('deploy/forward-auth/', () => {
  it.each(FORWARD_AUTH_PROXIES)('has a gateway for %s that needs no upstream', async (PROXY) => {
    const env = { PROXY, JWKS: 'https://identity.example.com/oidc/certs' }
    const { forwardAuth, listen, warnings, upstreams } = await load('deploy/forward-auth/sluice.yaml', env)
    expect(forwardAuth).toMatchObject({ port: 8090, from: PROXY })
    // The proxies listen on 8080.
    expect(listen.port).not.toBe(8080)
    expect([warnings, upstreams]).toEqual([[], []])
  })

  // The others run in forward-auth.test.ts.
  it.each(['traefik.yaml', 'envoy.yaml'])('%s asks the listener of sluice.yaml', (file) => {
    expect(fileText(`deploy/forward-auth/${file}`)).toMatch(/127\.0\.0\.1(?::|, port_value: )8090/)
  })

  it('drops fields with underscores that a backend may read as X-Sluice-Client, in Traefik and Envoy too', () => {
    const { unsigned } = parsed('deploy/forward-auth/traefik.yaml').http.middlewares
    expect(unsigned.headers.customRequestHeaders).toMatchObject({ X_Sluice_Client: '', Connection: '' })
    const [listener] = parsed('deploy/forward-auth/envoy.yaml').static_resources.listeners
    const { common_http_protocol_options: options } = listener.filter_chains[0].filters[0].typed_config
    expect(options).toEqual({ headers_with_underscores_action: 'DROP_HEADER' })
  })

  it('removes the API key after Sluice has checked it, in Traefik and Envoy too', () => {
    const { routers, middlewares } = parsed('deploy/forward-auth/traefik.yaml').http
    expect(routers.data.middlewares).toEqual(['unsigned', 'sluice', 'keyless'])
    expect(middlewares.keyless.headers.customRequestHeaders).toEqual({ 'X-Api-Key': '' })
    const [listener] = parsed('deploy/forward-auth/envoy.yaml').static_resources.listeners
    const { route_config: config, http_filters: filters } = listener.filter_chains[0].filters[0].typed_config
    expect(config.virtual_hosts[0].request_headers_to_remove).toEqual(['x-api-key'])
    expect(filters[0].typed_config.allowed_headers.patterns).toContainEqual({ exact: 'x-api-key' })
  })
})

describe('deploy/haproxy.cfg', () => {
  const patterns = [...haproxy.matchAll(/del-header '(.*)' -m reg$/gm)].map(([, one]) => new RegExp(one!))
  const isDeleted = (name: string): boolean => patterns.some((one) => one.test(name))

  it('deletes every field that only a proxy may set', () => {
    const source = fileText('src/downstream/request-fields.ts')
    const [, list] = /const PROXY_FIELDS = nameSet\(String\.raw`\s*([\s\S]*?)\s*`\)/.exec(source)!
    const parts = list!.split(/\s+/)
    expect(parts.length).toBeGreaterThan(5)
    for (const part of parts) expect(haproxy).toContain(part)
  })

  it('deletes only those fields of a caller', () => {
    const more = 'x-auth-request-email ssl_client_cert oidc_claim_sub x-sluice-client x_sluice.client'
    for (const name of [
      ...FROM_PROXY,
      'x-forwarded-for',
      'x-forwarded-host',
      'x-real-ip',
      ...more.split(' '),
    ]) {
      expect(actionOf(name), name).not.toBe('keep')
      expect(isDeleted(name), name).toBe(true)
    }
    const kept = 'authorization dpop content-type tpp-signature-certificate tpp-certificate x-mine'
    for (const name of kept.split(' ')) {
      expect(actionOf(name), name).toBeOneOf(['keep', 'checked'])
      expect(isDeleted(name), name).toBe(false)
    }
    expect(isDeleted('x-request-id')).toBe(false)
    expect(haproxy).toContain('\n  http-request del-header Connection\n')
  })
})

describe('deploy/systemd/', () => {
  it('starts, reloads and stops the gateway with its own commands and signals', async () => {
    const [, flags, words] = /^ExecStart=\S+ (.*) dist\/bin\/sluice\.js (.*)$/m.exec(unit)!
    const [, entry] = /^ENTRYPOINT (.*)$/m.exec(dockerfile)!
    expect(['node', ...flags!.split(' '), 'dist/bin/sluice.js']).toEqual(JSON.parse(entry!))
    expect(await isCommandLine(words!.split(' '))).toBe(true)
    expect(unit).toMatch(/^ExecReload=\/bin\/kill -HUP \$MAINPID$/m)
    expect(unit).toMatch(/^KillMode=mixed$/m)
    // journald drops no line of the access log.
    expect(unit).toMatch(/^LogRateLimitIntervalSec=0$/m)
    expect(unit).toMatch(/^RestartPreventExitStatus=64 78$/m)
  })

  it('deploy/systemd/ has an example of the variables without a secret', () => {
    const { ADMIN_TOKEN, REDIS_PASSWORD } = assigned(fileText('deploy/systemd/sluice.env.example'))
    expect([ADMIN_TOKEN, REDIS_PASSWORD]).toEqual(['', ''])
  })
})
