import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { fileOf, sluice } from './run.ts'

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
const RICH = GOOD.replace(
  'store: { redis: { url: "redis://user:hunter2@redis.internal:6379/1" } }',
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
    'limit: 1000, window: 1m, changes: [{ announced: 2026-01-01T00:00Z, from: 2100-01-15T00:00Z, limit: 1200 }] }\n  trial: { per: [client], limit: 800, window: 1m, shadow: true }',
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
  .replace('limits: [requests, sync] }', 'limits: [requests, sync, trial] }')

/** What `check` prints of this text, as YAML and as JSON. */
async function checked(text: string, ...flags: string[]) {
  const args = ['check', '--config', fileOf(text), ...flags]
  const people = await sluice(args)
  expect(people).toMatchObject({ code: 0, stderr: '' })
  const programs = await sluice([...args, '--json'])
  expect(programs).toMatchObject({ code: 0, stderr: '' })
  const json = JSON.parse(programs.stdout) as Record<string, unknown>
  return { yaml: people.stdout, parsed: parse(people.stdout) as unknown, json, text: programs.stdout }
}

describe('sluice check', () => {
  it('shows what is in effect, the routes in the order of matching, and no secret', async () => {
    const { yaml, parsed, json } = await checked(GOOD)
    expect(json).toMatchObject({
      listen: { host: '0.0.0.0', port: 8080, hosts: ['id.example.com'], servesOtherHosts: true },
      admin: { host: '127.0.0.1', port: 9090 },
      store: { redis: { url: 'redis://redis.internal:6379/1' }, onOutage: 'local', timeoutMs: 100 },
      tokens: [{ issuer: 'https://id.example.com/oidc', audience: ['https://api.example.com'] }],
      upstreams: [{ name: 'data', origins: ['http://data.internal:4000'], timeoutMs: 90_000 }],
      limits: [
        { name: 'requests', limit: 1000, windowMs: 60_000, per: ['client'], shadow: false },
        { name: 'sync', limit: 1, windowMs: 1500, per: ['client', 'connection'] },
      ],
      parameters: { connection: 'plain' },
      routes: [
        { match: 'id.example.com/*', limits: [], maxBody: 100, timeoutMs: 7_200_000 },
        {
          match: 'POST /sync/:connection',
          authenticate: 'bearer',
          limits: ['requests', 'sync'],
          timeoutMs: 90_000,
        },
      ],
      warnings: [],
    })
    expect(parsed).toEqual(json)
    expect(yaml).not.toContain('hunter2')
  })

  it('shows issuers, clients, changes and the rest, warnings, and still no secret', async () => {
    const { yaml, text, json } = await checked(RICH)
    for (const shown of [yaml, text]) expect(shown).not.toContain('hunter2')
    expect(json).toMatchObject({
      store: {
        redis: { sentinels: ['redis://s1', 'redis://s2'], name: 'main', password: '***' },
        instances: 3,
      },
      tokens: [
        { introspection: { url: 'http://id/introspect?***', clientSecret: '***' } },
        { audience: ['a', 'b'], jwks: { url: 'https://b.example.com/keys?***' } },
      ],
      par: { assertionAudience: 'compatible', unknownClients: 'refuse' },
      clients: [
        {
          id: 'acme',
          name: 'Acme',
          limits: { requests: { limit: 5000, until: '2100-01-30T23:00:00.000Z' } },
        },
        { id: 'bank', requestObjectSigningAlg: 'PS256', jwks: { url: 'https://bank.example.com/jwks?***' } },
      ],
      limits: [
        {
          name: 'requests',
          changes: [{ announced: '2026-01-01T00:00:00.000Z', from: '2100-01-15T00:00:00.000Z', limit: 1200 }],
        },
        { name: 'trial', shadow: true },
        { name: 'sync' },
      ],
      routes: [
        { authenticate: 'par' },
        { authenticate: 'authorization' },
        { scope: ['read', 'payments'] },
        { respond: 'limits' },
        {},
        { limits: ['requests', 'sync', 'trial'] },
      ],
      warnings: [{ where: expect.stringMatching(/:2:16$/) as string, path: 'admin.host' }],
    })
    expect(yaml).toContain('message: is reached from other machines, so /limits is refused')
    const token = RICH.replace('admin: { host: 0.0.0.0 }', 'admin: { token: hunter2-hunter2-hunter2 }')
    expect((await checked(token)).json).toMatchObject({ admin: { token: '***', onLoopback: true } })
    expect((await checked(token)).yaml).not.toContain('hunter2')
  })

  it('takes flags over the file, and the file that SLUICE_CONFIG names', async () => {
    expect((await checked(GOOD, '--store', 'memory', '--port', '81')).json).toMatchObject({
      listen: { port: 81 },
      store: 'memory',
    })
    const ended = await sluice(['check'], { env: { SLUICE_CONFIG: 'config/sluice.yaml', PORT: '7777' } })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).toContain('port: 7777')
  })

  it('ends wrong configuration with 78, every mistake on its line', async () => {
    const file = fileOf(
      GOOD.replace('per: [client]', 'per: client').replace('authenticate: none', 'authenticate: basic'),
    )
    expect(await sluice(['check', '--config', file, '--port', 'http'])).toEqual({
      code: 78,
      stdout: '',
      stderr: [
        '--port: must be a port from 0 to 65535',
        `${file}:7:20: limits.requests.per: must be a list of what a key is made of, such as [client], in [ ] or with a "- " before each`,
        `${file}:10:64: routes[0].authenticate: must be none, bearer, par or authorization`,
        '',
      ].join('\n'),
    })
  })

  it.for([
    ['/nowhere/sluice.yaml', 'does not exist'],
    ['/etc', 'is a directory, not a file'],
  ] as const)('ends with 78 where there is no configuration to read: %s', async ([file, message]) => {
    const stderr = `${file}: ${message}\n`
    expect(await sluice(['check', '--config', file])).toEqual({ code: 78, stdout: '', stderr })
  })
})
