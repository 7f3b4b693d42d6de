import { hash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { AUDIENCE, call, type Call, type LoggingGateway, startLogging } from '../helpers/gateway.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { makeKey, signJws, signProof, startIssuer, thumbprintOf } from '../helpers/issuer.ts'
import { encode, encodeForm } from '../helpers/par-request.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOST = 'api.example.com'
const PAR_ISSUER = 'https://identity.example.com/oidc'
const SECRET = 'never-in-the-log'
const [data, issuer, introspection] = await Promise.all([
  startUpstream(),
  startIssuer({ algorithms: ['PS256', 'ES256'] }),
  startIntrospection(),
])
const clientKey = makeKey('ES256', 'of-the-client')
const proofKey = makeKey('ES256')
const otherKey = makeKey('ES256')
const certificate = makeCertificate('client')

const start = (bound: object) =>
  startLogging({
    data: data.url,
    trustedProxies: ['127.0.0.0/8'],
    listen: { hosts: [HOST] },
    tokens: {
      issuer: issuer.issuer,
      audience: AUDIENCE,
      introspection: { url: introspection.url, clientId: 'sluice', clientSecret: 's3cret' },
      ...bound,
    },
    routes: [
      { match: 'POST /oidc/*', upstream: 'identity', authenticate: 'par' },
      { match: '/scoped/*', upstream: 'data', authenticate: 'bearer', scope: ['read'] },
      { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
    ],
    more: {
      par: { issuer: PAR_ISSUER },
      clients: [
        {
          id: 'by-key',
          authentication: 'private_key_jwt',
          requestObjectSigningAlg: 'ES256',
          jwks: { keys: [clientKey.jwk] },
        },
      ],
    },
  })
const [gateway, boundOnly] = await Promise.all([start({}), start({ bound: 'required' })])
introspection.answer = (response, { form }) => {
  const answers: Readonly<Record<string, object>> = {
    'of-another-api': { active: true, client_id: 'a', token_type: 'Bearer', aud: 'https://other.example' },
    'a-refresh-token': { active: true, client_id: 'a', token_type: 'refresh_token', aud: AUDIENCE },
    'of-no-kind': { active: true, client_id: 'a' },
    'bound-to-nothing': { active: true, client_id: 'a', token_type: 'DPoP', aud: AUDIENCE },
    'of-no-client': { active: true, username: 'u', token_type: 'Bearer', aud: AUDIENCE },
  }
  if (form['token'] === 'of-another-kind') response.writeHead(400)
  response.end(JSON.stringify(answers[form['token']!] ?? { active: false, error: 'unsupported_token_type' }))
}

/** Matches a cause that has a text, or that a pattern matches. */
const matching = (expected: string | RegExp): unknown =>
  typeof expected === 'string' ? expect.stringContaining(expected) : expect.stringMatching(expected)

let calls = 0
/** Sends a request. Returns its status, and the cause in its log line. */
async function causeOf(options: Call, { port, lines }: LoggingGateway = gateway) {
  const id = `call-${++calls}`
  const headers = { Host: HOST, ...options.headers, 'X-Request-Id': id }
  const { status } = await call(port, { ...options, headers })
  const own = () => lines().find(({ requestId }) => requestId === id)
  await until('the line', () => own() !== undefined)
  expect(JSON.stringify(own())).not.toContain(SECRET)
  return [status, own()!['cause']] as const
}

const now = () => Math.floor(Date.now() / 1000)
const LONG = 'x'.repeat(3000)
const withHeader = (header: Record<string, unknown>) => issuer.token({}, { header })

/** A kind of refused token, the token, and the beginning or a part of the cause. */
const TOKENS: readonly (readonly [string, () => string, string | RegExp])[] = [
  ['text with other characters', () => 'a;b', 'accepted: a token of letters'],
  ['four parts', () => 'eyJh.e30.AA.AA', /parts in base64url.* parts: 4$/],
  ['unused bits', () => 'eyJhbGciOiJub25lIn0.e30.AB', /a part is in another encoding$/],
  [
    'a payload that is a list',
    () => signJws({ alg: 'PS256' }, [], issuer.key('PS256')),
    /the payload is none$/,
  ],
  [
    'an unknown kid',
    () => withHeader({ kid: 'old' }),
    /^accepted kid: .*; of the header: "old"; alg: "PS256"$/,
  ],
  ['a long kid', () => withHeader({ kid: LONG }), /of the header: "x+…; alg: "PS256"$/],
  [
    'a kid of a key for another alg',
    () => withHeader({ kid: issuer.key('ES256').kid }),
    /^no key with this kid is for this alg; of the header: kid: ".+"; alg: "PS256"$/,
  ],
  [
    'a forged signature',
    () => issuer.token({}, { key: { ...makeKey('PS256'), kid: issuer.key('PS256').kid } }),
    /^keys tried: 1; of the header: kid: ".+"; alg: "PS256"$/,
  ],
  [
    'a forged signature without kid',
    () => issuer.token({}, { key: makeKey('PS256'), header: { kid: undefined } }),
    'keys tried: 1; of the header: kid: none; alg: "PS256"',
  ],
  ['an alg', () => withHeader({ alg: 'ES512' }), /^accepted alg: PS256, .*; of the token: "ES512"$/],
  ['no alg', () => withHeader({ alg: undefined }), /; of the token: none$/],
  ['crit', () => withHeader({ crit: ['b64'], b64: true }), /of the header: crit, b64$/],
  ['a kid that is a number', () => withHeader({ kid: 7 }), /a kid that is not a text$/],
  ['typ', () => withHeader({ typ: 'dpop+jwt' }), 'accepted typ: at+jwt, jwt; of the token: "dpop+jwt"'],
  ['iss', () => issuer.token({ iss: 'https://evil.example' }), /^accepted iss: .*"https:\/\/evil.example"$/],
  ['aud', () => issuer.token({ aud: ['a', LONG] }), /^accepted aud: https:.*; of the token: \["a","x+…$/],
  ['no exp', () => issuer.token({ exp: undefined }), 'accepted exp: seconds'],
  ['exp', () => issuer.token({ exp: 1 }), /^times: .*"exp":1,"now":\d+/],
  ['exp as a text', () => issuer.token({ exp: '9' }), /^times: .*"exp":"9"/],
  ['nbf', () => issuer.token({ nbf: now() + 999 }), /^times: .*"nbf":\d+/],
  [
    'cnf',
    () => issuer.token({ cnf: { jwk: { k: SECRET } } }),
    'accepted cnf: jkt, x5t#S256; of the token: ["jwk"]',
  ],
  ['a short jkt', () => issuer.token({ cnf: { jkt: 'x' } }), /\["jkt"\], with another length than 43$/],
  ['token_use', () => issuer.token({ token_use: 'id' }), 'accepted token_use: access; of the token: "id"'],
  [
    'no client',
    () => issuer.token({ client_id: undefined, azp: 'a' }),
    /none; it has azp: set tokens.clientClaim$/,
  ],
  ['sub', () => issuer.token({ sub: ['u'] }), /^accepted sub: .* of the token: another list$/],
  ['an inactive opaque token', () => SECRET, 'accepted active: true; of the introspection response: false'],
  ['an opaque token of another kind', () => 'of-another-kind', /endpoint does not accept such tokens/],
  ['an opaque token of another API', () => 'of-another-api', /^accepted aud: .*"https:\/\/other.example"$/],
  [
    'an opaque refresh token',
    () => 'a-refresh-token',
    /token_type names another kind; of the token: "refresh_token"$/,
  ],
  ['an opaque token of no kind', () => 'of-no-kind', /no aud, and no token_type/],
  ['an opaque token without key', () => 'bound-to-nothing', /no cnf with jkt$/],
  ['an opaque token without client', () => 'of-no-client', /^accepted client_id: .*none$/],
  [
    'another certificate',
    () => issuer.token({ cnf: { 'x5t#S256': 'y'.repeat(43) } }),
    `accepted x5t#S256: ${'y'.repeat(43)}; of the certificate: "${certificate.thumbprint}"`,
  ],
  [
    'a bound token without proof',
    () => issuer.token({ cnf: { jkt: thumbprintOf(proofKey) } }),
    `cnf of the token: jkt ${thumbprintOf(proofKey)}; scheme: Bearer`,
  ],
]

describe('the log line of a refused access token', () => {
  it.each(TOKENS)('names what it lacked: %s', async (_, make, expected) => {
    const token = make()
    const certified = { 'Client-Cert': `:${certificate.der.toString('base64')}:` }
    const [status, cause] = await causeOf({ token, headers: certified })
    expect([400, 401]).toContain(status)
    expect(cause).toEqual(matching(expected))
    expect(String(cause).length).toBeLessThanOrEqual(500)
    expect(String(cause)).not.toContain(token.split('.').at(-1))
  })

  it('names the scope, the binding and the number of headers that it lacked', async () => {
    const scoped = await causeOf({ path: '/scoped/a', token: issuer.token({ scope: 'write' }) })
    expect(scoped).toEqual([403, 'accepted scope: read; of the token: "write"'])
    const unbound = await causeOf({ token: issuer.token() }, boundOnly)
    expect(unbound).toEqual([401, 'accepted cnf: jkt, x5t#S256; of the token: none'])
    const dpop = await causeOf({ headers: { Authorization: `DPoP ${issuer.token()}` } })
    expect(dpop).toEqual([401, 'the token has no cnf with jkt'])
  })
})

type Proof = Partial<Parameters<typeof signProof>[0]>
const URL_OF_CALL = `http://${HOST}/transactions`
const PROOFS: readonly (readonly [string, Proof | readonly string[], string | RegExp])[] = [
  ['no proof', [], 'headers: 0'],
  ['two proofs', ['a', 'b'], 'headers: 2'],
  ['a text', ['a'], /parts: 1$/],
  ['a long proof', ['a'.repeat(9000)], 'accepted: 8192 characters; of the proof: 9000'],
  ['typ', { header: { typ: 'JWT' } }, 'accepted typ: dpop+jwt; of the proof: "JWT"'],
  ['alg', { header: { alg: 'HS256' } }, /^accepted alg: ES256, .*; of the proof: "HS256"$/],
  ['crit', { header: { crit: ['x'] } }, /of the header: crit$/],
  ['no key', { header: { jwk: undefined } }, 'accepted jwk: a key; of the proof: none'],
  ['a private key', { header: { jwk: { ...proofKey.jwk, d: SECRET } } }, /it has the member d$/],
  [
    'another kty',
    { header: { jwk: { kty: 'AKP', pub: 'x' } } },
    /^accepted kty: .*"AKP"; its members: \["kty","pub"\]$/,
  ],
  [
    'another key',
    { key: otherKey },
    `accepted jkt: ${thumbprintOf(proofKey)}; of the proof: "${thumbprintOf(otherKey)}"`,
  ],
  [
    'a forged signature',
    { key: otherKey, header: { jwk: { kty: 'EC', crv: 'P-256', x: proofKey.jwk.x, y: proofKey.jwk.y } } },
    `key of the proof: ${thumbprintOf(proofKey)}; alg: "ES256"`,
  ],
  ['an alg of another key', { header: { alg: 'EdDSA' } }, /; not usable for alg: "EdDSA"$/],
  ['htm', { method: 'POST' }, 'accepted htm: GET; of the proof: "POST"'],
  [
    'htu',
    { url: `https://${HOST}/other?token=${SECRET}` },
    `accepted htu: "${URL_OF_CALL}", at ["${HOST}"]; of the proof: "https://${HOST}/other"`,
  ],
  ['no htu', { claims: { htu: undefined } }, /of the proof: none$/],
  ['ath', { token: 'another' }, 'accepted ath: the SHA-256 of the token; of the proof: another'],
  ['no jti', { claims: { jti: undefined } }, /^accepted jti: .*of the proof: none$/],
  ['a long jti', { claims: { jti: LONG } }, /^accepted jti: .* 256 characters; of the proof: "x+…$/],
  ['iat', { claims: { iat: now() + 61 } }, /^iat: \d+; now: \d+$/],
]

describe('the log line of a refused DPoP proof', () => {
  const token = issuer.token({ cnf: { jkt: thumbprintOf(proofKey) } })
  const send = (proofs: readonly string[]) =>
    causeOf({ headers: { Authorization: `DPoP ${token}`, ...(proofs.length > 0 && { DPoP: [...proofs] }) } })

  it.each(PROOFS)('names what it lacked: %s', async (_, proof, expected) => {
    const proofs = Array.isArray(proof)
      ? (proof as readonly string[])
      : [signProof({ key: proofKey, token, url: URL_OF_CALL, ...(proof as Proof) })]
    const [status, cause] = await send(proofs)
    expect([status, cause]).toEqual([401, matching(expected)])
    expect(String(cause).length).toBeLessThanOrEqual(500)
    expect(cause).not.toContain(hash('sha256', token, 'base64url'))
  })

  it('names the key of a proof that was used before', async () => {
    const proof = [signProof({ key: proofKey, token, url: URL_OF_CALL })]
    expect((await send(proof))[0]).toBe(200)
    expect(await send(proof)).toEqual([401, `its jti, by the key ${thumbprintOf(proofKey)}`])
  })
})

const OF_JWT = (more: object = {}) => ({
  ...{ iss: 'by-key', sub: 'by-key', aud: PAR_ISSUER, jti: crypto.randomUUID(), exp: now() + 60 },
  ...more,
})
const signed = (claims: object, header: object = {}, key = clientKey) =>
  signJws({ alg: 'ES256', kid: key.kid, ...header }, OF_JWT(claims), key)

const JWT_FAULTS: readonly (readonly [string, () => string, string | RegExp])[] = [
  ['typ', () => signed({}, { typ: 'at+jwt' }), /^accepted typ: .*; of the header: "at\+jwt"$/],
  ['crit', () => signed({}, { crit: ['x'] }), /of the header: crit$/],
  [
    'kid',
    () => signed({}, { kid: 'old' }),
    'accepted kid: of-the-client; of the header: "old"; alg: "ES256"',
  ],
  [
    'signature',
    () => signed({}, { kid: clientKey.kid }, otherKey),
    'keys tried: 1; of the header: kid: "of-the-client"; alg: "ES256"',
  ],
  ['iss', () => signed({ iss: 'other' }), /^accepted iss: by-key; of the \w+: "other"$/],
  [
    'aud',
    () => signed({ aud: 'https://other.example' }),
    /^accepted aud: https:.*"https:\/\/other.example"$/,
  ],
  ['exp', () => signed({ exp: 1 }), /^times: .*"exp":1,/],
]

describe('the log line of a refused PAR request', () => {
  const PLAIN = { scope: 'openid', redirect_uri: 'https://a.example', response_type: 'code' }
  const push = (form: Record<string, unknown>) =>
    causeOf({
      method: 'POST',
      path: '/oidc/request',
      headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
      body: encodeForm({ client_id: 'by-key', ...PLAIN, ...form }),
    })
  const authenticated = (assertion = signed({})) => ({
    client_assertion: assertion,
    client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
  })

  it.each<(typeof JWT_FAULTS)[number]>([
    ...JWT_FAULTS,
    ['parts', () => SECRET, /parts: 1$/],
    ['alg', () => signed({}, { alg: 'HS256' }), /^accepted alg: PS256, .*; of the header: "HS256"$/],
    ['sub', () => signed({ sub: undefined }), 'accepted sub: by-key; of the assertion: none'],
    ['jti', () => signed({ jti: '' }), 'accepted jti: a text; of the assertion: ""'],
    ['no exp', () => signed({ exp: undefined }), /^times: /],
  ])('names what the client assertion lacked: %s', async (_, make, expected) => {
    const [status, cause] = await push(authenticated(make()))
    expect([status, cause]).toEqual([401, matching(expected)])
  })

  it.each<(typeof JWT_FAULTS)[number]>([
    ...JWT_FAULTS,
    ['parts', () => SECRET, /parts: 1$/],
    [
      'alg',
      () => `${encode({ alg: 'none' })}.${encode(OF_JWT())}.`,
      'accepted alg: ES256; of the object: "none"',
    ],
    ['client_id', () => signed({ client_id: 'b' }), 'accepted client_id: by-key; of the object: "b"'],
    ['nesting', () => signed({ request: SECRET }), 'of the object: request'],
  ])('names what the request object lacked: %s', async (_, make, expected) => {
    const [status, cause] = await push({ ...authenticated(), request: make() })
    expect([status, cause]).toEqual([400, matching(expected)])
  })

  it('names the authentication that the client must use', async () => {
    const accepted = 'accepted authentication: private_key_jwt; of the request: '
    expect(await push({ client_secret: SECRET })).toEqual([401, `${accepted}secret`])
    expect(await push({})).toEqual([400, `${accepted}none`])
  })
})
