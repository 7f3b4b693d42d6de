import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { call, type Call, TOKENS, yaml } from '../helpers/gateway.ts'
import { ASSERTION_TYPE, encode, ISSUER, plain } from '../helpers/par-request.ts'
import { serving } from '../helpers/process.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** Maximum processor time of any request beyond that of an innocent one of the same length, in milliseconds. */
const MAX_MS = 2
const TIMES = 5
/** Number of measurements. The smallest counts, as other processes on the same core disturb the caches. */
const MEASUREMENTS = 20
const HEAD_BYTES = 15_000
const BODY_BYTES = 63_000

const { n, e, kty } = generateKeyPairSync('rsa', { modulusLength: 4096 }).publicKey.export({ format: 'jwk' })
const upstream = await startUpstream((_, response) => response.end())
const jwks = { keys: Array.from({ length: 5 }, () => ({ n, e, kty })) }
const gateway = await serving(
  yaml({
    data: upstream.url,
    trustedProxies: ['127.0.0.1/32'],
    tokens: TOKENS,
    routes: [
      { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
      { match: 'GET,POST /oidc/auth', upstream: 'identity', authenticate: 'authorization' },
      { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
      { match: 'GET /v3/rate-limits', respond: 'limits', authenticate: 'bearer' },
      {
        match: 'POST /:version/sync/:connection',
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['requests', 'sync'],
      },
      { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
    ],
    more: {
      par: { issuer: ISSUER },
      clients: [{ id: 'signing', requestObjectSigningAlg: 'PS256', authentication: 'private_key_jwt', jwks }],
    },
  }),
)

async function cpuMs(): Promise<number> {
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  return 1000 * Number(/^process_cpu_seconds_total (\S+)$/m.exec(body)![1])
}

/** Returns the processor time of one request, in milliseconds. */
async function costOf(sent: Call): Promise<number> {
  const before = await cpuMs()
  for (let i = 0; i < TIMES; i++) await call(gateway.port, sent)
  return ((await cpuMs()) - before) / TIMES
}

/** Returns the least extra cost of a request over that of an innocent one. */
async function extraCost(sent: Call, innocent: Call): Promise<number> {
  let least = Infinity
  for (let i = 0; i < MEASUREMENTS && least > MAX_MS / 2; i++)
    least = Math.min(least, (await costOf(sent)) - (await costOf(innocent)))
  return least
}

const filled = (unit: string, bytes: number): string =>
  unit.repeat(Math.floor(bytes / Buffer.byteLength(unit)))
const nested = (open: string, close: string, bytes: number): string =>
  open.repeat(bytes / 2) + close.repeat(bytes / 2)
/** Returns a JWT with this header or payload, as JSON. */
const jwt = (header: string, payload: string, signature = 'x'.repeat(342)): string =>
  `${Buffer.from(header).toString('base64url')}.${Buffer.from(payload).toString('base64url')}.${signature}`
const HEADER = '{"alg":"PS256"}'

const HEADS: readonly (readonly [string, Call])[] = [
  ...(
    [
      ['a token of a deep header', jwt(`{"a":${nested('[', ']', 10_000)}}`, '{}')],
      ['a token of a deep payload', jwt(HEADER, nested('[', ']', 10_000))],
      ['a token of 2500 audiences', jwt(HEADER, JSON.stringify({ iss: ISSUER, aud: Array(2500).fill('a') }))],
      ['a token of dots', filled('.', HEAD_BYTES)],
      ['a token of equals signs', `a${filled('=', HEAD_BYTES)}`],
      ['an opaque token', filled('a', HEAD_BYTES)],
      ['a token with blanks before it', `${' '.repeat(HEAD_BYTES)}a`],
    ] as const
  ).map(([name, token]) => [name, { headers: { Authorization: `Bearer ${token}` } }] as const),
  ...(
    [
      ['Connection', filled('a,', HEAD_BYTES)],
      ['X-Forwarded-For', filled('1.1.1.1,', HEAD_BYTES)],
      ['X-Forwarded-For', filled('::1,', HEAD_BYTES)],
      ['Cookie', filled('a=1;', HEAD_BYTES)],
      ['Accept', filled('a/b;q=0.1,', HEAD_BYTES)],
      ['traceparent', filled('00-', HEAD_BYTES)],
      ['DPoP', filled('a.', HEAD_BYTES)],
      ['X-Request-Id', filled('a', HEAD_BYTES)],
      ['Client-Cert', `:${filled('AAAA', HEAD_BYTES)}:`],
      ['Host', filled('a.', 10_000)],
    ] as const
  ).map(([name, value]) => [`${name}: ${value.slice(0, 20)}…`, { headers: { [name]: value } }] as const),
  [
    '3000 tiny fields',
    { headers: Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [i.toString(36), ''])) },
  ],
  ...['/a', '/%41', '/%C3%A9', '/((', '/.php', '/a.', '/%2f', '/…'].map(
    (unit) =>
      [
        `a path of ${unit}`,
        { path: encodeURI(filled(unit, HEAD_BYTES)).slice(0, HEAD_BYTES).replaceAll('%25', '%') },
      ] as const,
  ),
  ['a connection of marks', { method: 'POST', path: `/v3/sync/${filled('%CC%95%CC%80', HEAD_BYTES)}` }],
  ...['a=1&', 'client_id=a&', 'client_id=%CC%95', 'a;', '%', '+', '='].map(
    (unit) =>
      [
        `a query of ${unit} at the authorisation endpoint`,
        { path: `/oidc/auth?${filled(unit, HEAD_BYTES)}` },
      ] as const,
  ),
]

const good = (more: Record<string, unknown>): string =>
  new URLSearchParams({
    ...(plain('other') as Record<string, string>),
    ...(more as Record<string, string>),
  }).toString()
const signing = (more: Record<string, unknown>): string => good({ client_id: 'signing', ...more })
const assertion = (text: string) => ({ client_assertion_type: ASSERTION_TYPE, client_assertion: text })
const forged = jwt(
  HEADER,
  JSON.stringify({ iss: 'signing', sub: 'signing', aud: ISSUER }),
  Buffer.alloc(512, 1).toString('base64url'),
)
const deep = nested('[', ']', 40_000)

const BODIES: readonly (readonly [string, string])[] = [
  ['a client_id of marks in the wrong order', `client_id=${filled('\u0315\u0300', BODY_BYTES)}`],
  ['a client_id of U+FDFA', `client_id=${filled('\uFDFA', BODY_BYTES)}`],
  ['a client_id of letters', `client_id=${filled('a', BODY_BYTES)}`],
  ['ampersands', filled('&', BODY_BYTES)],
  ['semicolons', filled(';', BODY_BYTES)],
  ['equals signs', filled('=', BODY_BYTES)],
  ['plus signs', `state=${filled('+', BODY_BYTES)}`],
  ['escapes', `state=${filled('%41', BODY_BYTES)}`],
  ['broken escapes', `state=${filled('%', BODY_BYTES)}`],
  ['many parameters', filled('a=1&', BODY_BYTES)],
  ['many clients', filled('client_id=a&', BODY_BYTES)],
  ['a long name', `${filled('a', BODY_BYTES)}=1`],
  ['many scopes', good({ scope: filled('a ', BODY_BYTES / 2) })],
  ['deep claims', good({ claims: `{"id_token":{"a":${deep}}}` })],
  ['wide claims', good({ claims: `{"id_token":{${filled('"a":1,', 30_000)}"a":1}}` })],
  ['a deep request object', signing({ request: jwt(HEADER, `{"a":${deep}}`) })],
  ['a request object of a deep header', signing({ request: jwt(`{"alg":"PS256","a":${deep}}`, '{}') })],
  ['a request object of dots', signing({ request: filled('.', 60_000) })],
  ['a deep assertion', signing(assertion(jwt(HEADER, `{"a":${deep}}`)))],
  [
    'an assertion of many audiences',
    signing(assertion(jwt(HEADER, JSON.stringify({ aud: Array(9000).fill('a') })))),
  ],
  ['an assertion that five RSA keys of 4096 bits are tried for', signing(assertion(forged))],
  ['a request object that five RSA keys of 4096 bits are tried for', signing({ request: forged })],
  ['an unsigned request object', signing({ request: `${encode({ alg: 'none' })}.${encode({ a: deep })}.` })],
]

const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }

describe('costs no more than as many innocent bytes:', () => {
  it.each(HEADS)('%s', async (_, sent) => {
    const bytes = JSON.stringify(sent).length
    const innocent = { path: '/v3/x', headers: { 'X-Pad': 'a'.repeat(Math.min(bytes, HEAD_BYTES)) } }
    expect(await extraCost({ path: '/v3/x', ...sent }, innocent)).toBeLessThan(MAX_MS)
  })

  it.each(
    ['/oidc/request', '/oidc/auth'].flatMap((path) =>
      BODIES.map(([name, body]) => [name, path, body] as const),
    ),
  )('a form with %s at %s', async (_, path, body) => {
    const sent = { method: 'POST', path, headers: FORM }
    const innocent = {
      ...sent,
      path: '/oidc/request',
      body: good({ state: 'a'.repeat(Math.max(0, Buffer.byteLength(body) - 500)) }),
    }
    expect(await extraCost({ ...sent, body }, innocent)).toBeLessThan(MAX_MS)
  })
})
