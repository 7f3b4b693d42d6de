import { chmodSync, mkdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { overridesOf } from '../../src/commands/configuration.ts'
import { loadConfig } from '../../src/config/load.ts'
import { ConfigError } from '../../src/config/yaml/issue.ts'
import { createRouter } from '../../src/downstream/router.ts'
import { createFolder } from '../helpers/folder.ts'
import { makeKey } from '../helpers/issuer.ts'
import { completed, load, mistakesIn } from './load-text.ts'

describe('loadConfig', () => {
  it('shares the copy of a limit among routes with the same cost and timeout of it', async () => {
    const text = `
limits:
  points: { per: [client], limit: 100, window: 1m }
  calls: { per: [client], concurrent: 5 }
routes:
${[
  ['a', 2, '10s'],
  ['b', 2, '10s'],
  ['c', 3, '20s'],
]
  .map(
    ([path, cost, timeout]) =>
      `  - { match: "/${path}", upstream: data, authenticate: bearer, limits: [points, calls], cost: { points: ${cost} }, timeout: ${timeout} }`,
  )
  .join('\n')}
`
    const { config } = await load(completed(text))
    const [a, b, c] = config.routes.map(({ limits }) => limits)
    expect(a!.map((limit, i) => limit === b![i])).toEqual([true, true])
    expect(a!.map((limit, i) => limit === c![i])).toEqual([false, false])
    expect(c![0]).toMatchObject({ cost: 3 })
  })

  it('fills in the defaults, with durations in milliseconds and sizes in bytes', async () => {
    const { config } = await load(completed(''))
    expect(config).toMatchObject({
      listen: {
        host: '0.0.0.0',
        port: 8080,
        trustedProxies: [],
        clientCertificate: 'Client-Cert',
        hosts: [],
        maxHeaderSize: 16_384,
        headersTimeoutMs: 15_000,
        requestTimeoutMs: 60_000,
        keepAliveTimeoutMs: 620_000,
        maxConnections: 10_000,
        maxConnectionsPerAddress: 1000,
      },
      admin: { host: '127.0.0.1', port: 9090, token: undefined, hosts: [], onLoopback: true },
      drainTimeoutMs: 10_000,
      log: { level: 'info' },
      store: 'memory',
      clients: [],
      headers: { draft: 'none' },
      warnings: [],
      tokens: [
        {
          issuer: 'https://id.example.com/oidc',
          audience: ['https://api.example.com'],
          jwks: undefined,
          clientClaim: 'client_id',
          algorithms: ['PS256', 'ES256', 'EdDSA', 'RS256'],
          leewayMs: 5000,
          realm: 'id.example.com',
          type: 'any',
        },
      ],
    })
    expect(config.log.format).toBeUndefined()
    expect(config.upstreams).toEqual([
      {
        name: 'data',
        origins: ['http://data.internal:4000'],
        path: '',
        maxHeaderSize: 65_536,
        timeoutMs: 30_000,
        connectTimeoutMs: 2000,
        maxConnections: 256,
        identityHeaders: [],
        callerHeaders: [],
        errors: 'problem',
        tls: undefined,
      },
    ])
  })

  it('gives the upstream of the PAR endpoint the errors of OAuth, unless it says otherwise', async () => {
    const errorsOf = async (more: string) => {
      const { config } = await load(`upstreams: { login: { url: http://login.internal:3000${more} } }
store: memory
par: { issuer: "https://login.example.com/oidc" }
routes:
  - { match: "POST /oidc/request", upstream: login, authenticate: par }
  - { match: "GET,POST /oidc/auth", upstream: login, authenticate: authorization }
`)
      return config.upstreams[0]!.errors
    }
    expect(await errorsOf('')).toBe('oauth')
    expect(await errorsOf(', errors: problem')).toBe('problem')
  })

  it('reads a single address of a proxy as a range', async () => {
    const { config } = await load(completed('listen: { trustedProxies: [10.0.0.1, "::1", 10.1.0.0/16] }'))
    expect(config.listen.trustedProxies).toEqual(['10.0.0.1/32', '::1/128', '10.1.0.0/16'])
  })

  it('fills in the defaults of a shared store', async () => {
    const { config } = await load(completed('store: { redis: { url: rediss://user:pw@redis:6380/3 } }'))
    expect(config.store).toEqual({
      redis: { topology: { url: 'rediss://user:pw@redis:6380/3' } },
      prefix: 'sluice',
      timeoutMs: 100,
      onOutage: 'local',
      overrides: 'optional',
    })
  })

  it('reads the path of the file of the overrides relative to the configuration', async () => {
    const fileOf = async (name: string) => {
      const text = completed(`store: { redis: { url: redis://r }, overridesFile: ${name} }`)
      const { config } = await load(text)
      return config.store === 'memory' ? undefined : config.store.overridesFile
    }
    expect(await fileOf('overrides.json')).toBe(join(process.cwd(), 'overrides.json'))
    // The folder of a service may be closed to the user who checks the file.
    const folder = createFolder()
    mkdirSync(join(folder, 'private'))
    chmodSync(folder, 0)
    const isRoot = process.geteuid!() === 0
    if (isRoot) process.seteuid!(65_534)
    try {
      const closed = join(folder, 'private', 'overrides.json')
      expect(await fileOf(closed)).toBe(closed)
    } finally {
      if (isRoot) process.seteuid!(0)
      chmodSync(folder, 0o700)
    }
  })

  it('accepts one Redis server, a cluster, or sentinels', async () => {
    const redisOf = async (inside: string, beside = {}) => {
      const { config } = await load(completed(`store: { redis: { ${inside} } }`), {}, [], beside)
      return config.store === 'memory' ? undefined : config.store.redis
    }
    expect(await redisOf('url: /run/redis.sock, username: u, password: p')).toEqual({
      topology: { url: '/run/redis.sock' },
      username: 'u',
      password: 'p',
    })
    expect(await redisOf('cluster: [rediss://a, "file:b"], tls: true', { b: 'rediss://b\n' })).toEqual({
      topology: { cluster: ['rediss://a', 'rediss://b'] },
      tls: {},
    })
    expect(
      await redisOf('sentinels: ["redis://[::1]:26379"], name: main, sentinelPassword: file:secret', {
        secret: 's3cret',
      }),
    ).toEqual({
      topology: { sentinels: ['redis://[::1]:26379'], name: 'main', sentinelPassword: 's3cret' },
    })
    expect(await redisOf('sentinels: ["rediss://a"], name: main, tls: false')).toEqual({
      topology: { sentinels: ['rediss://a'], name: 'main', isMasterPlain: true },
    })
    expect(await redisOf('url: "redis://a", tls: false')).toEqual({ topology: { url: 'redis://a' } })
  })

  it('reads durations and sizes with decimals exactly', async () => {
    const { config } = await load(
      completed('listen: { requestTimeout: 4.35m, maxHeaderSize: 1.001953125kB }\ndrainTimeout: 2.01s'),
    )
    expect(config.listen).toMatchObject({ requestTimeoutMs: 261_000, maxHeaderSize: 1026 })
    expect(config.drainTimeoutMs).toBe(2010)
  })

  it('compiles changes, shadow limits and own limits of clients', async () => {
    const text = [
      'clients:',
      '  - { id: "007", name: Acme, limits: { requests: { limit: 0 }, sync: { limit: 2, window: 1s, until: "2100-01-01T00:00:00+01:00" } } }',
      '  - { id: plain }',
      'limits:',
      '  requests:',
      '    per: [client]',
      '    limit: 1000',
      '    window: 1m',
      '    changes:',
      '      - { announced: 2026-12-01T00:00Z, from: 2100-01-15T00:00:00.500Z, limit: 1200 }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
      '  trial: { per: [client], limit: 800, window: 1m, shadow: true }',
      'routes:',
      '  - { match: "GET /mine", respond: limits, authenticate: bearer }',
      '  - { match: "/:connection", upstream: data, authenticate: bearer, limits: [requests, sync, trial] }',
    ].join('\n')
    const { config } = await load(completed(text))
    expect(config.clients).toEqual([
      { id: '007', folded: '007', caller: '007', name: 'Acme' },
      { id: 'plain', folded: 'plain', caller: 'plain', name: undefined },
    ])
    expect(config.clientLimits).toEqual(
      new Map([
        [
          '007',
          new Map([
            ['requests', { limit: 0 }],
            ['sync', { limit: 2, windowMs: 1000, untilAt: Date.UTC(2099, 11, 31, 23) }],
          ]),
        ],
      ]),
    )
    const [requests, , trial] = config.limits
    expect(requests!.changes).toEqual([
      {
        announcedAt: Date.UTC(2026, 11, 1),
        fromAt: Date.UTC(2100, 0, 15, 0, 0, 0, 500),
        limit: 1200,
      },
    ])
    expect(trial).toMatchObject({ name: 'trial', shadow: true })
    expect(config.routes[0]).toMatchObject({ respond: 'limits', limits: [] })
    expect(config.routes[0]!.upstream).toBeUndefined()
    expect(config.warnings).toEqual([])
  })

  it('compiles the routes in order, each with the limits that it names', async () => {
    const { config } = await load(completed(''))
    const matched = createRouter(config.routes)('POST', 'any', ['sync', 'abc'])
    if (matched === undefined || !('route' in matched)) throw new Error('nothing matched')
    expect(matched.params).toEqual({ connection: 'abc' })
    expect(matched.route).toMatchObject({
      match: 'POST /sync/:connection',
      upstream: 'data',
      authenticate: 'bearer',
      maxBody: 10 * 1024 ** 2,
    })
    expect(matched.route.limits).toEqual([
      { name: 'requests', per: ['client'], limit: 1000, windowMs: 60_000, shadow: false, changes: [] },
      { name: 'sync', per: ['client', 'connection'], limit: 1, windowMs: 5000, shadow: false, changes: [] },
    ])
    expect(matched.route.limits[0]).toBe(config.limits[0])
  })

  it('serves the hosts of the routes, unless others are listed', async () => {
    const routes = [
      'routes:',
      '  - { match: "ID.example.com/a", upstream: data, authenticate: none }',
      '  - { match: "id.example.com/*", upstream: data, authenticate: none }',
    ].join('\n')
    expect((await load(completed(routes))).config.listen.hosts).toEqual(['id.example.com'])
    const listed = await load(completed(`listen: { hosts: [API.example.com] }\n${routes}`))
    expect(listed.config.listen.hosts).toEqual(['api.example.com'])
  })

  it('allows limits of 0, unused limits and upstreams, and a limit per address on an open route', async () => {
    const text = [
      'upstreams:',
      '  data: { url: https://data.internal }',
      '  spare: { url: "http://[::1]:80" }',
      'limits:',
      '  none: { per: [ip], limit: 0, window: 100ms }',
      '  unused: { per: [user], limit: 1, window: 31d }',
      'routes:',
      '  - { match: "/*", upstream: data, authenticate: none, limits: [none] }',
    ].join('\n')
    const { config } = await load(`store: memory\n${text}`)
    expect(config.upstreams.map(({ origins }) => origins)).toEqual([
      ['https://data.internal'],
      ['http://[::1]'],
    ])
    expect(config.tokens).toEqual([])
  })

  it('requires tokens on routes with bearer', async () => {
    const text = completed('tokens: x').replace('tokens: x\n', '')
    expect(await mistakesIn(text)).toEqual([
      'sluice.yaml:1:1: tokens: is missing, but routes[0] has "authenticate: bearer"; write it',
    ])
  })

  it('reports the position of a mistake after a byte order mark and Windows line ends', async () => {
    const text = `\uFEFF${completed('listen: { prt: 1 }\nadmin:\n  port: x').replaceAll('\n', '\r\n')}`
    expect(await mistakesIn(text)).toEqual([
      'sluice.yaml:1:11: listen.prt: unknown key; did you mean "port"?',
      'sluice.yaml:3:9: admin.port: must be a port from 0 to 65535',
    ])
  })

  it('resolves a file of keys relative to the configuration', async () => {
    const tokens = 'tokens: { issuer: https://id.example.com, audience: a, jwks: ./keys.json }'
    const { config } = await load(completed(tokens), {}, [], {
      'keys.json': JSON.stringify({ keys: [makeKey('ES256').jwk] }),
    })
    expect(config.tokens[0]?.jwks).toEqual({ file: expect.stringMatching(/^\/.*\/keys\.json$/) as string })
  })

  it('refuses a file of keys without a usable one', async () => {
    const tokens = 'tokens: { issuer: https://id.example.com, audience: a, jwks: ./keys.json }'
    for (const keys of [[], [{ kty: 'oct', k: 'c2VjcmV0' }]]) {
      const beside = { 'keys.json': JSON.stringify({ keys }) }
      expect(await mistakesIn(completed(tokens), {}, [], beside)).toEqual([
        "sluice.yaml:1:62: tokens.jwks: names keys.json, which has no key that verifies tokens; write the issuer's JWK Set there, or its URL here",
      ])
    }
  })

  it('accepts several issuers, one with introspection and its secret from a file', async () => {
    const tokens = [
      'tokens:',
      '  - { issuer: https://a.example.com, audience: [a, b] }',
      '  - issuer: https://b.example.com',
      '    audience: b',
      '    jwks: https://b.example.com/keys',
      '    introspection: { url: "http://b/introspect", clientId: "${ID}", clientSecret: file:secret, maxAge: 0s }',
    ].join('\n')
    const { config } = await load(completed(tokens), { ID: '007' }, [], { secret: 's3cret\n' })
    expect(config.tokens).toMatchObject([
      { issuer: 'https://a.example.com', audience: ['a', 'b'], realm: 'a.example.com' },
      {
        issuer: 'https://b.example.com',
        jwks: { url: 'https://b.example.com/keys' },
        introspection: {
          url: 'http://b/introspect',
          clientId: '007',
          clientSecret: 's3cret',
          timeoutMs: 3000,
          maxAgeMs: 0,
        },
      },
    ])
  })

  it('qualifies client ids by their issuers, if there are several', async () => {
    const text = [
      'tokens:',
      '  - { issuer: https://a.example.com, audience: a }',
      '  - { issuer: https://b.example.com, audience: b }',
      'clients:',
      '  - { id: acme, limits: { requests: { limit: 1 } } }',
      '  - { id: acme, issuer: https://b.example.com, limits: { requests: { limit: 2 } } }',
      '  - { id: party, issuer: https://a.example.com }',
    ]
    const { config } = await load(completed(text.join('\n')))
    expect(config.clients.map(({ caller }) => caller)).toEqual([
      'acme',
      'acme@https://b.example.com',
      'party',
    ])
    expect([...config.clientLimits].map(([caller, own]) => [caller, own.get('requests')?.limit])).toEqual([
      ['acme', 1],
      ['acme@https://b.example.com', 2],
    ])
  })

  it('fills in the rules of the PAR endpoint, and keeps the settings of its clients', async () => {
    const { jwk } = makeKey('ES256')
    const text = [
      'par: { issuer: https://id.example.com/oidc/ }',
      'clients:',
      `  - { id: a, requestObjectSigningAlg: ES256, authentication: private_key_jwt, jwks: { keys: [${JSON.stringify(jwk)}] } }`,
      '  - { id: b, jwksUri: https://b.example.com/jwks }',
      'routes:',
      '  - { match: "POST id.example.com/oidc/request", upstream: data, authenticate: par }',
      '  - { match: "GET,POST id.example.com/oidc/auth", upstream: data, authenticate: authorization }',
      '  - { match: "/:connection", upstream: data, authenticate: bearer, scope: [read, "id:7"], limits: [requests, sync] }',
    ].join('\n')
    const { config } = await load(completed(text))
    expect(config.par).toEqual({
      issuer: 'https://id.example.com/oidc/',
      audiences: ['https://id.example.com/oidc/token', 'https://id.example.com/oidc/request'],
      assertionAudience: 'compatible',
      leewayMs: 10_000,
      maxBody: 65_536,
      requestUri: 'urn:ietf:params:oauth:request_uri:',
      unknownClients: 'forward',
    })
    expect(config.clients).toEqual([
      {
        id: 'a',
        folded: 'a',
        caller: 'a',
        requestObjectSigningAlg: 'ES256',
        authentication: 'private_key_jwt',
        jwks: { keys: [jwk] },
      },
      { id: 'b', folded: 'b', caller: 'b', jwks: { url: 'https://b.example.com/jwks' } },
    ])
    expect(config.routes.map(({ authenticate, scope, maxBody }) => [authenticate, scope, maxBody])).toEqual([
      ['par', [], 65_536],
      ['authorization', [], 65_536],
      ['bearer', ['read', 'id:7'], 10 * 1024 ** 2],
    ])
    expect(config.warnings).toEqual([])
    const listed = await load(completed(text.replace('oidc/ }', 'oidc, audiences: [] }')))
    expect(listed.config.par?.audiences).toEqual([])
  })

  it('resolves an anchor that a thousand routes and clients use', async () => {
    const many = Array.from({ length: 1000 }, (_, i) => i)
    const routes = many.map((i) => `  - { <<: *route, match: "/r${i}", limits: *std }`).join('\n')
    const clients = many.map((i) => `  - { id: client-${i}, limits: *gold }`).join('\n')
    const text = [
      'clients:',
      '  - { id: first, limits: &gold { requests: { limit: 5 } } }',
      clients,
      'routes:',
      '  - &route { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: &std [requests, sync] }',
      '  - { <<: *route, match: "/all", limits: &std [requests] }',
      routes,
    ].join('\n')
    const { config } = await load(completed(text))
    expect([config.routes.length, config.clients.length]).toEqual([1002, 1001])
  })

  it('resolves anchors, aliases and merge keys independently', async () => {
    const text = completed(
      'upstreams:\n  data: &d { url: http://a:1, timeout: 5s }\n  other: { <<: *d, url: http://b:2 }',
    )
    const { config } = await load(text)
    expect(config.upstreams.map(({ origins, timeoutMs }) => [origins[0], timeoutMs])).toEqual([
      ['http://a:1', 5000],
      ['http://b:2', 5000],
    ])
    const shared = completed('listen: &l { host: 127.0.0.1 }\nadmin: *l')
    const flags = overridesOf({ port: '1', 'admin-port': '2' })
    expect((await load(shared, {}, flags)).config.listen.port).toBe(1)
  })

  it('hashes the file', async () => {
    const file = join(import.meta.dirname, '../../config/sluice.yaml')
    const { createHash } = await import('node:crypto')
    const { hash } = await loadConfig({ file, env: {} })
    expect(hash).toBe(
      createHash('sha256')
        .update(await readFile(file))
        .digest('hex'),
    )
  })
})

async function problemOf(file: string): Promise<string> {
  const error: unknown = await loadConfig({ file }).catch((error: unknown) => error)
  if (!(error instanceof ConfigError)) throw error
  return error.message
}

it('leases of calls at once last as long as the timeout of their route, within bounds', async () => {
  const file = (timeout: string) =>
    completed(
      'limits: { requests: { per: [client], concurrent: 2 }, sync: { per: [client], limit: 1, window: 1m } }',
    ).replace(
      /routes:\n/,
      `routes:\n  - { match: "/leased", upstream: data, authenticate: bearer, limits: [requests], timeout: ${timeout} }\n`,
    )
  const lease = async (timeout: string) => (await load(file(timeout))).config.routes[0]!.limits[0]!.windowMs
  expect(await lease('1s')).toBe(2000)
  expect(await lease('20s')).toBe(20_000)
  expect(await lease('10m')).toBe(30_000)
})

it('weeks begin on Monday by default', async () => {
  const limits = `limits:
  requests: { per: [client], limit: 1, window: { calendar: week } }
  sync: { per: [client], limit: 1, window: { calendar: week, timezone: Europe/Lisbon, firstDay: saturday } }`
  const { config } = await load(completed(limits))
  expect(config.limits.map(({ windowMs, calendar }) => ({ windowMs, calendar }))).toEqual([
    { windowMs: 170 * 3_600_000, calendar: { unit: 'week', timezone: 'UTC', firstDay: 'monday' } },
    {
      windowMs: 170 * 3_600_000,
      calendar: { unit: 'week', timezone: 'Europe/Lisbon', firstDay: 'saturday' },
    },
  ])
})

it('a configuration with calendars and conditions can be handed to other threads and processes', async () => {
  const limits = `limits:
  requests: { per: [client], limit: { claim: n, default: 4 }, window: { calendar: month, timezone: Europe/Lisbon } }
  sync: { per: [client], limit: 1, window: 1m, unless: { header: A, is: ip }, refusal: { body: [1] } }`
  const { config } = await load(completed(limits))
  expect(structuredClone(config).limits).toEqual([
    {
      ...{ name: 'requests', per: ['client'], limit: 4, claim: { name: 'n' }, changes: [], shadow: false },
      ...{
        windowMs: 31 * 86_400_000 + 2 * 3_600_000,
        calendar: { unit: 'month', timezone: 'Europe/Lisbon' },
      },
    },
    {
      ...{ name: 'sync', per: ['client'], limit: 1, windowMs: 60_000, changes: [], shadow: false },
      unless: [{ of: 'header', name: 'a', is: 'ip' }],
      refusal: { status: 429, headers: {}, body: '[1]', contentType: 'application/json' },
    },
  ])
})

describe('a file that cannot be read', () => {
  it('a file that cannot be read is named, with the reason', async () => {
    expect(await problemOf('/nowhere/sluice.yaml')).toBe('/nowhere/sluice.yaml: does not exist')
    expect(await problemOf('/etc/hostname/x')).toBe('/etc/hostname/x: does not exist')
    expect(await problemOf('/etc')).toBe('/etc: is a directory, not a file')
  })

  it('a file that cannot be read must be UTF-8', async () => {
    expect(await mistakesIn('', {}, [], { 'sluice.yaml': new Uint8Array([0xff, 0xfe, 0x61, 0x00]) })).toEqual(
      ['sluice.yaml: is not UTF-8 text; save it as UTF-8'],
    )
  })

  it('a file that cannot be read may not be nested too deeply', async () => {
    expect(await mistakesIn(`\n${'['.repeat(100_000)}`)).toEqual([
      'sluice.yaml:1:1: the brackets of the file nest too deeply; remove some',
    ])
    expect(await mistakesIn('- '.repeat(100_000))).toHaveLength(1)
    expect(await mistakesIn(completed('# [\n'.repeat(200)))).toEqual([])
  })

  // Quadratic time would take minutes.
  it('a file that cannot be read may have many anchors and keys', { timeout: 30_000 }, async () => {
    const keys = Array.from({ length: 50_000 }, (_, i) => `  key${i}: &anchor${i} 1\n`).join('')
    expect(await mistakesIn(completed(`x:\n${keys}`))).toEqual([
      expect.stringContaining('sluice.yaml:1:1: x: unknown key'),
    ])
  })
})
