import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { sluice as sluiceProcess, without } from '../helpers/process.ts'
import { FULL, quickly } from '../helpers/runs.ts'
import { fileOf, sluice } from './run.ts'

const GOOD = `
store: { redis: { url: "rediss://user:hunter2@redis.internal:6379/1" } }
upstreams:
  data: { url: http://data.internal:4000, timeout: 90s }
tokens: { issuer: https://id.example.com/oidc, audience: https://api.example.com }
limits:
  requests: { per: [client], limit: 1000, window: 1m }
  sync: { per: [client, connection], limit: 1, window: 1500ms }
routes:
  - { match: "id.example.com/*", upstream: data, authenticate: none, maxBody: 100B, timeout: 2h }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
`
const RICH = GOOD.replace(
  'store: { redis: { url: "rediss://user:hunter2@redis.internal:6379/1" } }',
  `admin: { host: 0.0.0.0 }
store:
  redis: { sentinels: [redis://s1, redis://s2], name: main, username: hunter2, password: hunter2, sentinelPassword: hunter2 }
  onOutage: local
  instances: 3
par: { issuer: https://id.example.com, unknownClients: refuse }
clients:
  - { id: acme, name: Acme, limits: { requests: { limit: 5000, until: 2100-01-31T00:00:00+01:00 } } }
  - { id: bank, requestObjectSigningAlg: PS256, jwksUri: "https://bank.example.com/jwks?k=hunter2" }`,
)
  .replace(
    /^tokens: .*$/m,
    `tokens:
  - issuer: https://id.example.com/oidc
    audience: https://api.example.com
    introspection: { url: "http://id/introspect?apikey=hunter2", clientId: sluice, clientSecret: hunter2 }
  - { issuer: https://b.example.com, audience: [a, b], jwks: "https://b.example.com/keys?k=hunter2" }`,
  )
  .replace(
    'limit: 1000, window: 1m }',
    'limit: 1000, window: 1m, changes: [{ announced: 2026-01-01T00:00Z, from: 2100-01-15T00:00Z, limit: 1200 }] }\n  share: { per: [client], limit: 600, window: 1m, counts: requests }\n  trial: { per: [client], limit: 800, window: { calendar: week }, shadow: true }\n  exports: { per: [client], concurrent: 3 }',
  )
  .replace(
    'routes:\n',
    `routes:
  - { match: "POST /oidc/request", upstream: data, authenticate: par }
  - { match: "GET,POST /oidc/auth", upstream: data, authenticate: authorization }
  - { match: "/payments", upstream: data, authenticate: bearer, scope: [read, payments] }
  - { match: "/mine", respond: limits, authenticate: bearer }
`,
  )
  .replace('limits: [requests, sync] }', 'limits: [requests, share, sync, trial, exports] }')

/** Runs `check` on this text, and returns its YAML and its JSON. */
async function checked(text: string, ...flags: string[]) {
  const args = ['check', '--config', fileOf(text), ...flags]
  const people = await sluice(args)
  expect(people).toMatchObject({ code: 0, stderr: '' })
  const programs = await sluice([...args, '--json'])
  expect(programs).toMatchObject({ code: 0, stderr: '' })
  const { warnings, ...json } = JSON.parse(programs.stdout) as Record<string, unknown>
  expect(parse(people.stdout)).toEqual(json)
  for (const shown of [people.stdout, programs.stdout]) expect(shown).not.toContain('hunter2')
  return { yaml: people.stdout, json, warnings }
}

/** A file that names almost everything from elsewhere. */
const OFFLINE = [
  'listen:',
  '  { port: "${PORT}", host: "${H}", hosts: ["${HOSTS}"], trustedProxies: ["${PODS}"], tls: { cert: /nowhere/c.pem, key: /nowhere/k.pem, ciphers: ECDHE-RSA-AES128-GCM-SHA256, clientCa: "${CA}", crl: /nowhere/l.pem } }',
  'admin: { port: "${P}", token: "${TOKEN}" }',
  'log: { level: "${LEVEL}", audit: /nowhere/audit }',
  'store: { redis: { url: "${REDIS}", password: "file:/run/nowhere" }, onOutage: "${OUT}", timeout: "${T}", overridesFile: /nowhere/x }',
  'upstreams: { api: { url: "http://${API_HOST}:4000" }, other: { url: "${X}" } }',
  'tokens: { issuer: "https://${ID}/oidc", audience: "${A}", jwks: ./nowhere.json, leeway: "${LEEWAY}" }',
  'limits: { requests: { limit: "${N}", window: "${W}", per: [ip], shadow: "${SH}" } }',
  'routes:',
  '  - { match: "/${BASE}/a", upstream: "${UP}", authenticate: "${AUTH}", limits: [requests] }',
  '  - { match: "${HOST1}/x", upstream: other, authenticate: none }',
  '  - { match: "${HOST2}/x", upstream: api, authenticate: none }',
].join('\n')

describe('sluice check', () => {
  it('shows the path of the resource’s metadata, which no route gets', async () => {
    const file = fileOf(
      GOOD.replace('audience: https', 'resource: "https://id.example.com/bank", audience: https'),
    )
    const { code, stdout } = await sluice(['check', '--config', file])
    expect(code).toBe(0)
    const path = '/.well-known/oauth-protected-resource/bank'
    expect(stdout).toMatch(
      new RegExp(`^# resource +https://id.example.com/bank; ${path} is served before the routes$`, 'm'),
    )
    expect(stdout).toMatch(/^# routes +2$/m)
  })

  it('summarizes the file in ten lines', async () => {
    const { yaml } = await checked(GOOD)
    const [summary] = yaml.split('\n\n')
    expect(summary!.replace(/\S+\.yaml/, 'FILE').split('\n')).toEqual([
      '# file       FILE is valid, with 0 warnings',
      '# callers    at 0.0.0.0:8080, for any host',
      '# operators  at 127.0.0.1:9090',
      '# tokens     of https://id.example.com/oidc',
      '# upstreams  data at http://data.internal:4000',
      '# limits     requests 1000 (1m, per client); sync 1 (1500ms, per client, connection)',
      '# counted    Redis at redis.internal:6379',
      '# clients    0 in "clients", 0 with own limits',
      '# routes     2',
      '# open       id.example.com/*',
    ])
    const rich = (await checked(RICH)).yaml
    expect(rich).toMatch(/^# warning    \S+:2:16: admin\.host: is reached from other machines, so /m)
    expect(rich).toMatch(
      /^# limits     .*; share 600 \(1m, per client\); trial 800 \(week from monday \(UTC\), per client, shadow\); exports 3 \(at once, per client\); sync /m,
    )
    expect(rich).toMatch(/^# clients    2 in "clients", 1 with own limits$/m)
    expect(rich).toMatch(/^# counted    The master of the sentinels at /m)
    const hosts = GOOD.replace(/^store: .*$/m, 'listen: { hosts: [a.example, b.example] }\nstore: memory')
    expect((await checked(hosts)).yaml).toMatch(
      /^# callers    at 0\.0\.0\.0:8080, for a\.example, b\.example$/m,
    )
    const names = Array.from({ length: 1000 }, (_, i) => `h${i}.example`)
    const many = hosts.replace('a.example, b.example', names.join()).replace('{ hosts', '{ host: "::", hosts')
    expect((await checked(many)).yaml).toMatch(
      /^# callers    at \[::\]:8080, for h0\.example, .*, h19\.example and 980 more$/m,
    )
  })

  it('says how many API keys it found, of how many clients', async () => {
    const file = fileOf('')
    const keys = ['acme', 'acme', 'globex'].map(
      (id, i) => `- { id: ${id}, sha256: "${String(i).repeat(64)}" }\n`,
    )
    writeFileSync(join(dirname(file), 'counted.yaml'), keys.join(''))
    const { yaml } = await checked(`store: memory
keys: { field: apikey, file: counted.yaml }
upstreams: { data: { url: "http://127.0.0.1:4000" } }
routes: [{ match: "/*", upstream: data, authenticate: key }]
`)
    expect(yaml).toMatch(/^# keys {7}3 keys of 2 clients in \S+\/counted\.yaml, sent in apikey$/m)
  })

  it('checks a file where its variables and files are not, with --offline', async () => {
    const file = fileOf(OFFLINE)
    expect((await sluice(['check', '--config', file])).code).toBe(78)
    const { code, stdout, stderr } = await sluice(['check', '--offline', '--json', '--config', file])
    expect([code, stderr]).toEqual([0, ''])
    const { notes, warnings } = JSON.parse(stdout) as Record<string, readonly { path: string }[]>
    expect(warnings).toEqual([])
    expect(notes!.map(({ path }) => path).toSorted()).toEqual(
      [
        ...['listen.port', 'listen.host', 'listen.hosts[0]', 'listen.trustedProxies[0]', 'listen.tls.cert'],
        ...['listen.tls.key', 'listen.tls.clientCa', 'listen.tls.crl', 'admin.port', 'admin.token'],
        ...['log.level', 'log.audit', 'store.redis.url', 'store.redis.password', 'store.onOutage'],
        ...['store.timeout', 'store.overridesFile', 'upstreams.api.url', 'upstreams.other.url'],
        ...['tokens.issuer', 'tokens.audience', 'tokens.jwks', 'tokens.leeway', 'limits.requests.limit'],
        ...['limits.requests.window', 'limits.requests.shadow', 'routes[0].match', 'routes[0].upstream'],
        ...['routes[0].authenticate', 'routes[1].match', 'routes[2].match'],
      ].toSorted(),
    )
    const text = await sluice(['check', '--offline', '--config', file])
    expect(text.stdout).toMatch(
      /^# not here +\S+:3:\d+: admin\.token: needs the environment variable TOKEN; set it, or a default$/m,
    )
    expect(text.stdout).toContain('password: file:/run/nowhere')
  })

  it('still finds the mistakes of everything else with --offline', async () => {
    const file = fileOf(
      OFFLINE.replace('"${W}"', 'soon')
        .replace('"${X}"', '"${X"')
        .replace('/nowhere/k.pem', 'package.json')
        .replace('upstream: other', 'upstream: othr'),
    )
    const { code, stderr } = await sluice(['check', '--offline', '--config', file])
    expect(code).toBe(78)
    expect(stderr.replaceAll(file, 'f').trimEnd().split('\n')).toEqual([
      expect.stringMatching(/^f:6:\d+: upstreams\.other\.url: is malformed/),
      expect.stringMatching(/^f:8:\d+: limits\.requests\.window: must be a duration/),
      expect.stringMatching(
        /^f:11:\d+: routes\[1\]\.upstream: there is no such upstream; did you mean "other"/,
      ),
    ])
    expect(await sluice(['check', '--offline', '--connect', '--config', file])).toMatchObject({ code: 64 })
  })

  it.each(['deploy/kubernetes', 'deploy/gateway', 'deploy/demo', 'deploy/forward-auth'])(
    'checks the file in %s offline, without any secret',
    async (folder) => {
      const { code, stdout } = await sluice(['check', '--offline', '--config', `${folder}/sluice.yaml`])
      expect(code).toBe(0)
      expect(stdout).toMatch(/is valid, with \d warnings?$/m)
    },
  )

  it('prints the file’s own keys and units, and marks defaults', async () => {
    const { yaml, json, warnings } = await checked(GOOD)
    expect(json).toMatchObject({
      listen: { host: '0.0.0.0', port: 8080, headersTimeout: '15s', maxHeaderSize: '16kB' },
      admin: { host: '127.0.0.1', port: 9090 },
      drainTimeout: '10s',
      store: { redis: { url: 'rediss://***@redis.internal:6379/1' }, onOutage: 'local', timeout: '100ms' },
      upstreams: { data: { url: 'http://data.internal:4000', timeout: '90s', connectTimeout: '2s' } },
      limits: { requests: { per: ['client'], limit: 1000, window: '1m', shadow: false } },
      routes: [{ match: 'id.example.com/*', maxBody: '100B', timeout: '2h' }, { maxBody: '10MB' }],
    })
    expect(warnings).toEqual([])
    for (const line of [
      '  port: 8080 # default',
      '  headersTimeout: 15s # default',
      'drainTimeout: 10s # default',
      '  data: { url: http://data.internal:4000, timeout: 90s, maxHeaderSize: 64kB, connectTimeout: 2s, maxConnections: 256 }',
      '  - { match: POST /sync/:connection, upstream: data, authenticate: bearer, limits: [ requests, sync ], maxBody: 10MB, body: false }',
    ])
      expect(yaml.split('\n')).toContain(line)
  })

  it('hides secrets, but not the files that contain them', async () => {
    const { json, warnings } = await checked(RICH)
    expect(json).toMatchObject({
      store: {
        redis: { sentinels: ['redis://s1', 'redis://s2'], name: 'main', password: '***' },
        instances: 3,
      },
      tokens: [
        { introspection: { url: 'http://id/introspect?***', clientSecret: '***' }, leeway: '5s' },
        { audience: ['a', 'b'], jwks: 'https://b.example.com/keys?***' },
      ],
      clients: [{ id: 'acme' }, { jwksUri: 'https://bank.example.com/jwks?***' }],
    })
    expect(warnings).toMatchObject([{ where: expect.stringMatching(/:2:16$/) as string, path: 'admin.host' }])
    const admin = (token: string) => RICH.replace('admin: { host: 0.0.0.0 }', `admin: { token: "${token}" }`)
    expect((await checked(admin('hunter2-hunter2-hunter2'))).json).toMatchObject({ admin: { token: '***' } })
    const secret = `file:${fileOf('hunter2-hunter2-hunter2')}`
    expect((await checked(admin(secret))).json).toMatchObject({ admin: { token: secret } })
  })

  it('prints the differences from another file by their keys, without secrets', async () => {
    const other = fileOf(
      RICH.replace('limit: 1000', 'limit: 10')
        .replaceAll('hunter2', 'swordfish')
        .replace('id: bank', 'id: other')
        .replace(/^ {2}sync: .*\n/m, ''),
    )
    const against = ['check', '--config', fileOf(RICH), '--against', other]
    const { code, stdout } = await sluice(against)
    expect(code).toBe(0)
    expect(stdout.split('\n')).toEqual([
      'store.redis.username *** → ***',
      'store.redis.password *** → ***',
      'store.redis.sentinelPassword *** → ***',
      'clients.other removed: { id: other, requestObjectSigningAlg: PS256, jwksUri: https://bank.example.com/jwks?*** }',
      'clients.bank added: { id: bank, requestObjectSigningAlg: PS256, jwksUri: https://bank.example.com/jwks?*** }',
      expect.stringMatching(/^tokens\[.*\]\.introspection\.url http:\/\/id\/introspect\?\*\*\* → /) as string,
      expect.stringMatching(/^tokens\[.*\]\.introspection\.clientSecret \*\*\* → \*\*\*$/) as string,
      expect.stringMatching(/^tokens\["https:\/\/b\.example\.com"\]\.jwks .* → /) as string,
      'limits.requests.limit 10 → 1000',
      'limits.sync added: { per: [ client, connection ], limit: 1, window: 1500ms }',
      '',
    ])
    expect(JSON.parse((await sluice([...against, '--json'])).stdout)).toMatchObject({
      changes: expect.arrayContaining(['limits.requests.limit 10 → 1000']) as string[],
    })
    const same = fileOf(RICH)
    expect((await sluice(['check', '--config', same, '--against', same])).stdout).toBe(
      `No differences from ${same}.\n`,
    )
    const broken = fileOf('routes: [')
    expect(await sluice(['check', '--config', same, '--against', broken])).toMatchObject({
      code: 78,
      stderr: expect.stringContaining(`${broken}:`) as string,
    })
  })

  it('lets flags override the file, and reads the file that SLUICE_CONFIG names', async () => {
    expect((await checked(GOOD, '--store', 'memory', '--port', '81')).json).toMatchObject({
      listen: { port: 81 },
      store: 'memory',
    })
    const ended = await sluice(['check'], { env: { SLUICE_CONFIG: 'config/sluice.yaml', PORT: '7777' } })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).toContain('\n  port: 7777\n')
  })

  it('exits with 78 for a wrong configuration, and prints every mistake with its line', async () => {
    const file = fileOf(
      GOOD.replace('per: [client]', 'per: client').replace('authenticate: none', 'authenticate: basic'),
    )
    expect(await sluice(['check', '--config', file, '--port', 'http'])).toEqual({
      code: 78,
      stdout: '',
      stderr: [
        '--port: must be a port from 0 to 65535',
        `${file}:7:20: limits.requests.per: must be a list of the parts of a key, such as [client], in [ ] or with a "- " before each`,
        `${file}:10:64: routes[0].authenticate: must be none, bearer, key, [bearer, key], par or authorization`,
        '',
      ].join('\n'),
    })
  })

  it.for([
    ['/nowhere/sluice.yaml', 'does not exist'],
    ['/etc', 'is a directory, not a file'],
  ] as const)('exits with 78 if the configuration cannot be read: %s', async ([file, message]) => {
    const stderr = `${file}: ${message}\n`
    expect(await sluice(['check', '--config', file])).toEqual({ code: 78, stdout: '', stderr })
  })

  it('names the packages to install if the file traces without them, as start does', async () => {
    const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      peerDependencies: Record<string, string>
    }
    const file = fileOf(`${GOOD}tracing: { endpoint: "http://127.0.0.1:1/v1/traces" }\n`)
    const packages = Object.entries(peerDependencies)
      .filter(([name]) => name.startsWith('@opentelemetry/'))
      .map(([name, version]) => `${name}@${version}`)
    expect(packages).toContainEqual(expect.stringMatching(/^@opentelemetry\/sdk-trace@\d/))
    for (const command of quickly(['start'], ['check', 'start'])) {
      const lacking = sluiceProcess([command, '--config', file], without('@opentelemetry/'))
      expect(await lacking.ended()).toBe(78)
      expect(lacking.stdout()).toBe('')
      expect(lacking.stderr()).toBe(
        `${file}: tracing: needs packages; run "npm install ${packages.join(' ')}", with --global if Sluice is installed so\n`,
      )
    }
    expect(await sluice(['check', '--config', file])).toMatchObject({ code: 0 })
  })

  it.runIf(FULL)('needs no packages for traces if the file does not trace', async () => {
    const checking = sluiceProcess(['check', '--config', fileOf(GOOD)], without('@opentelemetry/'))
    expect(await checking.ended()).toBe(0)
  })
})

it('sluice check names the operators with their rights, and shows no token, also in differences', async () => {
  const operators = (may: string) => `admin:
  token: hunter2-hunter2-hunter2
  tokens:
    - { name: support, token: hunter2-of-support-desk, may: ${may} }
    - { name: payments, token: hunter2-of-the-team, may: [requests, sync] }
${GOOD}`
  const file = fileOf(operators('read'))
  const checked = await sluice(['check', '--config', file])
  expect(checked.stdout).toContain(
    '# operators  at 127.0.0.1:9090, with a token, support may read, payments may set requests, sync\n',
  )
  const compared = await sluice(['check', '--config', fileOf(operators('set')), '--against', file])
  expect(compared.stdout).toBe('admin.tokens.support.may read → set\n')
  const added = await sluice(['check', '--config', file, '--against', fileOf(GOOD)])
  expect(added.stdout).toContain('name: support')
  for (const { stdout } of [checked, compared, added]) expect(stdout).not.toContain('hunter2')
})
