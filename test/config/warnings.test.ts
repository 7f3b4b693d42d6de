import { describe, expect, it } from 'vitest'
import { problemLine } from '../../src/config/yaml/problem.ts'
import { completed, load, type Row } from './load-text.ts'

const NOW_MS = Date.parse('2027-01-01T00:00:00Z')
const TOKEN = '0123456789abcdef'

const WARNINGS: readonly Row[] = [
  [
    'a limit that no route names',
    [
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
      '  spare: { per: [ip], limit: 1, window: 5s }',
    ],
    ['4:3: limits.spare: is named by no route, so it limits nothing'],
  ],
  [
    'the last change that is in force',
    [
      'limits:',
      '  requests:',
      '    per: [client]',
      '    limit: 1000',
      '    window: 1m',
      '    changes:',
      '      - { announced: 2026-01-01T00:00:00Z, from: 2026-02-01T00:00:00Z, limit: 1200 }',
      '      - { announced: 2026-01-01T00:00:00Z, from: 2027-01-01T01:00:00+01:00, limit: 1300 }',
      '      - { announced: 2026-01-01T00:00:00Z, from: 2027-01-01T00:00:00.001Z, limit: 1400 }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
    ],
    [
      '8:50: limits.requests.changes[1].from: has passed; write limit: 1300 for "requests" and take this change out',
    ],
  ],
  [
    'a kind of a parameter by which no limit counts',
    [
      'parameters: { connection: uuid, version: plain }',
      'routes:',
      '  - { match: "POST /:version/sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
    ],
    ['1:33: parameters.version: has no effect, because no limit of a route with it counts by it'],
  ],
  [
    'own limits that have ended or say nothing',
    [
      'clients:',
      '  - { id: a, limits: { requests: { limit: 5, until: 2027-01-01T00:00:00Z } } }',
      '  - { id: b, limits: { requests: { limit: 5, until: 2027-01-01T00:00:01Z } } }',
      '  - { id: c, limits: { requests: { limit: 1000 }, sync: { limit: 1, window: 1s } } }',
    ],
    [
      '2:53: clients[0].limits.requests.until: has passed, so this limit has no effect any more; take it out or write a later instant',
      '4:24: clients[2].limits.requests: is what "requests" is for every client; take it out',
    ],
  ],
  [
    'an admin listener that others reach without a token',
    'admin: { host: 0.0.0.0 }',
    [
      '1:16: admin.host: is reached from other machines, and there is no "token", so /limits is refused here; set admin.token to a secret of 16 characters or more',
    ],
  ],
  [
    'variables as other programs write them',
    [
      'tokens:',
      '  issuer: https://id.example.com/oidc',
      '  audience: $AUDIENCE',
      '  introspection: { url: "http://id/{{ path }}", clientId: a$B, clientSecret: pa$word }',
      'store: { redis: { url: "redis://:$REDIS_PASSWORD@a" } }',
    ],
    [
      '3:13: tokens.audience: is taken as it stands; write ${NAME} for the environment variable NAME',
      '4:25: tokens.introspection.url: is taken as it stands; write ${NAME} for the environment variable NAME',
      '5:24: store.redis.url: is taken as it stands; write ${NAME} for the environment variable NAME',
    ],
  ],
  [
    'proxies that are everybody',
    'listen: { trustedProxies: [10.0.0.0/8, 0.0.0.0/0, "::/0"] }',
    [
      '1:40: listen.trustedProxies[1]: trusts every caller, so that anybody sets X-Forwarded-For and Client-Cert; write the addresses of your proxies',
      '1:51: listen.trustedProxies[2]: trusts every caller, so that anybody sets X-Forwarded-For and Client-Cert; write the addresses of your proxies',
    ],
  ],
  [
    'an upstream that no route names',
    ['upstreams:', '  data: { url: http://data.internal:4000 }', '  spare: { url: http://spare.internal }'],
    ['3:3: upstreams.spare: is named by no route, so nothing is sent to it'],
  ],
  [
    'a blank around the id of a client',
    'clients: [{ id: "acme " }, { id: "a b" }, { id: "\\u00A0b" }]',
    [
      '1:17: clients[0].id: begins or ends with a blank, which is part of the id; take it out if it is not meant',
      '1:49: clients[2].id: begins or ends with a blank, which is part of the id; take it out if it is not meant',
    ],
  ],
  [
    'TLS that trusts everybody',
    'store: { redis: { url: rediss://a, tls: { rejectUnauthorized: false } } }',
    [
      '1:63: store.redis.tls.rejectUnauthorized: trusts whoever answers for Redis; write "ca" with the authority that signed its certificate',
    ],
  ],
  [
    'rules for a PAR endpoint that is not there',
    [
      'par: { issuer: https://id.example.com }',
      'clients: [{ id: a, authentication: none }, { id: b, jwksUri: https://b }]',
    ],
    [
      '1:1: par: has no effect, because no route says "authenticate: par"',
      '2:20: clients[0].authentication: has no effect, because no route says "authenticate: par"',
      '2:53: clients[1].jwksUri: has no effect, because no route says "authenticate: par"',
    ],
  ],
  [
    'signatures that nobody verifies here',
    [
      'par: { issuer: https://id.example.com }',
      'clients:',
      '  - { id: a, requestObjectSigningAlg: PS256 }',
      '  - { id: b, requestObjectSigningAlg: PS256, authentication: private_key_jwt }',
      '  - { id: c, requestObjectSigningAlg: none, authentication: client_secret_basic }',
      '  - { id: d, requestObjectSigningAlg: HS256, authentication: tls_client_auth }',
      'routes:',
      '  - { match: "POST /oidc/request", upstream: data, authenticate: par }',
      '  - { match: "/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
    ],
    [
      '3:39: clients[0].requestObjectSigningAlg: is compared, but no signature is verified; for that, write "jwks" or "jwksUri"',
      '4:62: clients[1].authentication: is checked by the identity backend alone; for the gateway to check it too, write "jwks" or "jwksUri"',
    ],
  ],
  [
    'what is set for the PAR endpoint of a client whose issuer is another',
    [
      'tokens: [{ issuer: https://a, audience: a }, { issuer: https://b, audience: a }]',
      'par: { issuer: https://b }',
      'clients:',
      '  - { id: a, issuer: https://a, authentication: none }',
      '  - { id: b, issuer: https://b, authentication: none }',
      '  - { id: c, authentication: none }',
      'routes:',
      '  - { match: "POST /oidc/request", upstream: data, authenticate: par }',
      '  - { match: "/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
    ],
    ['4:33: clients[0].authentication: has no effect, because the issuer of "par" is another'],
  ],
  ['nothing of an admin listener with a token', `admin: { host: 0.0.0.0, token: ${TOKEN} }`, []],
  ...['127.0.0.1', '127.1.2.3', '"::1"', 'localhost', '"::ffff:127.0.0.1"'].map((host): Row => [
    `nothing of the admin listener at ${host}`,
    `admin: { host: ${host} }`,
    [],
  ]),
]

describe('a warning', () => {
  it.for(WARNINGS)('tells of %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const { config } = await load(completed(text), {}, [], {}, NOW_MS)
    expect(config.warnings.map(problemLine)).toEqual(
      lines.map((line) => expect.stringMatching(new RegExp(`/sluice\\.yaml:${escaped(line)}$`)) as string),
    )
  })

  it('names the flag that gave the value', async () => {
    const overrides = [{ flag: '--admin-host', path: ['admin', 'host'], value: '::' }]
    const { config } = await load(completed(''), {}, overrides)
    expect(config.warnings.map(({ where }) => where)).toEqual(['--admin-host'])
  })
})

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/]/g, String.raw`\$&`)
}
