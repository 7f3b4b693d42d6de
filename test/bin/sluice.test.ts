import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { VERSION } from '../../src/observe/version.ts'
import { itEndsWrongUsage, sluice, spawnSluice } from './run.ts'

const GOOD = `
store: { redis: { url: "redis://user:hunter2@redis.internal:6379/1" } }
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
const STACK = /^\s+at .*:\d+/m

describe('sluice', () => {
  it('shows help with examples, and its version', async () => {
    const help = await sluice(['--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    for (const part of [
      'sluice start',
      'sluice check',
      'sluice explain',
      'sluice limits',
      'sluice replay',
      'sluice sandbox',
      'Examples:',
      'Exit codes:',
    ]) {
      expect(help.stdout).toContain(part)
    }
    expect(await sluice(['--version'])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' })
    const start = await sluice(['start', '--help'])
    for (const flag of [
      'config',
      'port',
      'host',
      'admin-port',
      'admin-host',
      'redis',
      'store',
      'workers',
      'log-level',
      'log-format',
    ]) {
      expect(start.stdout).toContain(`--${flag} `)
    }
  })

  itEndsWrongUsage([
    [[], 'Which command? One of start, check, explain, limits, replay, sandbox.'],
    [['chek'], 'Did you mean check?'],
    [['start'], 'Which configuration? Give --config FILE, or set SLUICE_CONFIG.'],
    [['check', '--confg', 'x'], 'Unknown argument: confg'],
    [['check', 'sluice.yaml'], 'Unknown argument: ***'],
    [['check', 'redis://u:hunter2@h', 'x'], 'Unknown arguments: ***, ***'],
    [['check', '--port'], 'Not enough arguments following: port'],
    [
      ['start', '--store', 'memory', '--redis', 'redis://r'],
      'Arguments store and redis are mutually exclusive',
    ],
    [['sandbox', '--limit', 'few'], '--limit must be a whole number from 0 to 9007199254740991.'],
    [['start', '--workers', '0'], '--workers must be a whole number from 1 to 256.'],
    [['worker'], 'Workers are started by "sluice start --workers N".'],
    [['sandbox', '--port', '70000'], '--port must be a whole number from 0 to 65535.'],
  ])

  it.for(['start', 'check'])(
    'ends wrong configuration with 78, every mistake on its line: %s',
    async (command) => {
      const stdin = GOOD.replace('per: [client]', 'per: client').replace(
        'authenticate: none',
        'authenticate: basic',
      )
      const ended = await sluice([command, '--config', '-', '--port', 'http'], { stdin })
      expect(ended).toEqual({
        code: 78,
        stdout: '',
        stderr: [
          '--port: must be a port from 0 to 65535',
          'stdin:7:20: limits.requests.per: must be a list of what a key is made of, such as [client], in [ ] or with a "- " before each',
          'stdin:10:64: routes[0].authenticate: must be none, bearer or par',
          '',
        ].join('\n'),
      })
    },
  )

  it('ends with 78 where several workers would each count alone', async () => {
    const args = ['start', '--config', '-', '--store', 'memory', '--workers', '4']
    expect(await sluice(args, { stdin: GOOD })).toEqual({
      code: 78,
      stdout: '',
      stderr:
        '--workers: is 4, but "store: memory" counts in each process alone, so each would grant every limit anew; write "store: { redis: … }", or leave --workers out\n',
    })
  })

  it.for([
    ['/nowhere/sluice.yaml', '/nowhere/sluice.yaml: does not exist\n'],
    ['/etc', '/etc: is a directory, not a file\n'],
    ['-', 'stdin:1:1: the file is empty; config/sluice.yaml shows what to write\n'],
  ] as const)('ends with 78 where there is no configuration to read: %s', async ([file, stderr]) => {
    expect(await sluice(['start', '--config', file])).toEqual({ code: 78, stdout: '', stderr })
  })
})

describe('sluice check', () => {
  it('shows what is in effect, the routes in the order of matching, and no secret', async () => {
    const ended = await sluice(['check', '--config', '-'], { stdin: GOOD })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout.split('\n')).toEqual([
      'listen  http://0.0.0.0:8080            serves id.example.com, any other host on routes that name none',
      'admin   http://127.0.0.1:9090',
      'store   redis://redis.internal:6379/1  keys start with "sluice", a decision waits 100ms, then each gateway counts its part',
      'tokens  https://id.example.com/oidc    for https://api.example.com, keys by discovery',
      '',
      'UPSTREAM  ORIGIN                     TIMEOUT  CONNECT  CONNECTIONS',
      'data      http://data.internal:4000  90s      2s       256',
      '',
      'LIMIT     CALLS  WINDOW  PER                 MODE',
      'requests  1000   1m      client              live',
      'sync      1      1500ms  client, connection  live',
      '',
      'PARAMETER    KIND',
      ':connection  plain',
      '',
      'ROUTE                   ANSWERED BY  AUTHENTICATE  LIMITS          MAX BODY  TIMEOUT',
      'id.example.com/*        data         none          -               100B      2h',
      'POST /sync/:connection  data         bearer        requests, sync  10MB      90s',
      '',
    ])
  })

  it('shows the same as JSON', async () => {
    const ended = await sluice(['check', '--config', '-', '--json', '--store', 'memory'], { stdin: GOOD })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(ended.stdout)).toMatchObject({
      listen: { host: '0.0.0.0', port: 8080, hosts: ['id.example.com'] },
      store: 'memory',
      routes: [
        { match: 'id.example.com/*', limits: [], maxBody: 100, timeoutMs: 7_200_000 },
        { match: 'POST /sync/:connection', authenticate: 'bearer', limits: ['requests', 'sync'] },
      ],
    })
    const shared = await sluice(['check', '--config', '-', '--json'], { stdin: GOOD })
    expect(shared.stdout).toContain('"redis://redis.internal:6379/1"')
    expect(shared.stdout).not.toContain('hunter2')
  })

  it('shows who is believed, and what is asked at the PAR endpoint, without a secret', async () => {
    const stdin = GOOD.replace(
      /^tokens: .*$/m,
      `tokens:
  - issuer: https://id.example.com/oidc
    audience: https://api.example.com
    introspection: { url: "http://id/introspect?apikey=hunter2", clientId: sluice, clientSecret: hunter2 }
  - { issuer: https://b.example.com, audience: [a, b], jwks: "https://b.example.com/keys?k=hunter2" }
par: { issuer: https://id.example.com, unknownClients: refuse }
clients:
  - { id: acme, name: Acme, requestObjectSigningAlg: PS256, jwksUri: "https://acme.example.com/jwks?k=hunter2" }
  - { id: bank, authentication: client_secret_basic }
  - { id: plain }`,
    ).replace(
      'routes:\n',
      `routes:
  - { match: "POST /oidc/request", upstream: data, authenticate: par }
  - { match: "/payments", upstream: data, authenticate: bearer, scope: [read, payments] }
`,
    )
    const ended = await sluice(['check', '--config', '-'], { stdin })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).not.toContain('hunter2')
    for (const line of [
      'tokens  https://id.example.com/oidc    for https://api.example.com, keys by discovery; opaque ones looked up at http://id/introspect?***, which count for 30s',
      'tokens  https://b.example.com          for a, b, keys from https://b.example.com/keys?***',
      'par     https://id.example.com         assertions for it or https://id.example.com/token, https://id.example.com/request; unknown clients: refuse; bodies up to 64kB',
      'CLIENT  NAME  SIGNS  AUTHENTICATES        KEYS',
      'acme    Acme  PS256  -                    https://acme.example.com/jwks?***',
      'bank    -     -      client_secret_basic  -',
      'POST /oidc/request      data         par                   -               64kB      90s',
      '/payments               data         bearer read payments  -               10MB      90s',
    ]) {
      expect(ended.stdout.split('\n')).toContain(line)
    }
    const json = await sluice(['check', '--config', '-', '--json'], { stdin })
    expect(json.stdout).not.toContain('hunter2')
    expect(JSON.parse(json.stdout)).toMatchObject({
      tokens: [{ introspection: { clientSecret: '***' } }, { audience: ['a', 'b'] }],
      par: { assertionAudience: 'compatible' },
      clients: [{ id: 'acme', requestObjectSigningAlg: 'PS256' }, {}, {}],
      routes: [{ authenticate: 'par' }, { scope: ['read', 'payments'] }, {}, {}],
    })
  })

  const RICH = GOOD.replace(
    'store: { redis: { url: "redis://user:hunter2@redis.internal:6379/1" } }',
    `admin: { host: 0.0.0.0 }
store:
  redis: { sentinels: [redis://s1, redis://s2], name: main, username: hunter2, password: hunter2, sentinelPassword: hunter2 }
  onOutage: local
  instances: 3
clients: [{ id: acme, name: Acme, limits: { requests: { limit: 5000, until: 2100-01-31T00:00:00+01:00 } } }]`,
  )
    .replace(
      'limit: 1000, window: 1m }',
      'limit: 1000, window: 1m, changes: [{ announced: 2026-01-01T00:00Z, from: 2100-01-15T00:00Z, limit: 1200 }] }\n  trial: { per: [client], limit: 800, window: 1m, shadow: true }',
    )
    .replace(
      'limits: [requests, sync] }',
      'limits: [requests, sync, trial] }\n  - { match: "/mine", respond: limits, authenticate: bearer }',
    )

  it('shows changes, own limits, shadow limits, what is done in an outage, and warnings', async () => {
    const ended = await sluice(['check', '--config', '-'], { stdin: RICH })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).not.toContain('hunter2')
    for (const line of [
      'store   "main" of the sentinels redis://s1, redis://s2  keys start with "sluice", a decision waits 100ms, then each of 3 counts its part',
      'requests  1000   1m      client              live',
      'trial     800    1m      client              shadow',
      'CHANGE    CALLS  FROM                      ANNOUNCED',
      'requests  1200   2100-01-15T00:00:00.000Z  2026-01-01T00:00:00.000Z',
      'CLIENT  NAME  LIMIT     CALLS  WINDOW  UNTIL',
      'acme    Acme  requests  5000   1m      2100-01-30T23:00:00.000Z',
      '/mine                   gateway (limits)  bearer        -                      10MB      -',
      'warning: stdin:2:16: admin.host: is reached from other machines, and there is no "token", so /limits is refused here; set admin.token to a secret of 16 characters or more',
    ]) {
      expect(ended.stdout.split('\n')).toContain(line)
    }
  })

  it('shows all of that as JSON, and still no secret', async () => {
    const stdin = RICH.replace('admin: { host: 0.0.0.0 }', 'admin: { token: hunter2-hunter2-hunter2 }')
    const ended = await sluice(['check', '--config', '-', '--json'], { stdin })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).not.toContain('hunter2')
    expect(JSON.parse(ended.stdout)).toMatchObject({
      admin: { token: '***', onLoopback: true },
      store: {
        redis: { sentinels: ['redis://s1', 'redis://s2'], name: 'main', password: '***' },
        onOutage: 'local',
        instances: 3,
      },
      clients: [
        {
          id: 'acme',
          name: 'Acme',
          limits: { requests: { limit: 5000, until: '2100-01-30T23:00:00.000Z' } },
        },
      ],
      limits: [
        {
          name: 'requests',
          changes: [{ announced: '2026-01-01T00:00:00.000Z', from: '2100-01-15T00:00:00.000Z', limit: 1200 }],
        },
        { name: 'trial', shadow: true },
        { name: 'sync' },
      ],
      routes: [{}, { limits: ['requests', 'sync', 'trial'] }, { respond: 'limits' }],
      warnings: [],
    })
  })

  it('reads the file that SLUICE_CONFIG names', async () => {
    const env = { SLUICE_CONFIG: 'config/sluice.yaml', PORT: '7777' }
    const ended = await sluice(['check'], { env })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).toContain('http://0.0.0.0:7777')
  })
})

describe('sluice start', () => {
  const flags = ['--store', 'memory', '--host', '127.0.0.1', '--admin-port', '0', '--log-format', 'json']
  let child: ReturnType<typeof spawnSluice> | undefined
  afterEach(() => child?.kill('SIGKILL'))

  it('ends with 1 where the port is in use', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    await once(taken, 'listening')
    try {
      const { port } = taken.address() as AddressInfo
      const ended = await sluice(['start', '--config', '-', '--port', String(port), ...flags], {
        stdin: GOOD,
      })
      expect(ended.code).toBe(1)
      expect(ended.stderr).toMatch(/^sluice: .+\n$/)
      expect(ended.stderr).toContain(String(port))
      expect(ended.stdout + ended.stderr).not.toMatch(STACK)
    } finally {
      taken.close()
    }
  })

  it.for(['SIGTERM', 'SIGINT'] as const)('serves until %s, then ends with 0', async (signal) => {
    child = spawnSluice(['start', '--config', '-', '--port', '0', ...flags])
    child.stdin!.end(GOOD)
    const ended = once(child, 'close')
    await Promise.race([once(child.stdout!, 'data'), ended])
    child.kill(signal)
    expect(await ended).toEqual([0, null])
  })
})
