import { createHmac } from 'node:crypto'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { BoundToken } from '../../../src/authenticate/token/challenge.ts'
import { createBearer } from '../../../src/authenticate/token/bearer.ts'
import type { Identity } from '../../../src/authenticate/token/claims.ts'
import { createVerifyProof, type Sender } from '../../../src/authenticate/proof/dpop.ts'
import { Refusal } from '../../../src/errors.ts'
import {
  makeKey,
  signJws,
  signProof,
  startIssuer,
  type TestAlgorithm,
  type TestKey,
  thumbprintOf,
} from '../../helpers/issuer.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { createServing, keysOf, trust } from '../../helpers/trust.ts'

const URL = 'https://api.example.com/v3/transactions'
const hosts = ['api.example.com']
const key = makeKey('ES256')
const mallory = makeKey('ES256')
const issuer = await startIssuer({ algorithms: ['ES256'] })
const keys = await keysOf(issuer)
const authenticate = createServing(trust(issuer, keys), createVerifyProof(hosts))

type Answer = Identity | Refusal
type Members = Readonly<Record<string, unknown>>

const REQUEST = { method: 'GET', scheme: 'https', host: 'api.example.com', path: '/v3/transactions' }
const sender = (proofs: readonly string[], request: Partial<Sender> = {}) => ({
  ...REQUEST,
  certificate: () => undefined,
  ...request,
  proofs,
})
const boundBy = (cnf: unknown) => issuer.token({ cnf })
const bound = (to: TestKey = key) => boundBy({ jkt: thumbprintOf(to) })
const proves = (token: string, claims: Members = {}, header: Members = {}) =>
  signProof({ key, token, url: URL, claims, header })

/** Sends a request with a token and these proofs; by default a token bound to `key`, with a valid proof. */
async function send({
  token = bound(),
  proofs = [proves(token)],
  scheme = 'DPoP',
  request = {},
}: {
  readonly token?: string
  readonly proofs?: readonly string[]
  readonly scheme?: string
  readonly request?: Partial<Sender>
} = {}): Promise<Answer> {
  return authenticate([`${scheme} ${token}`], () => sender(proofs, request))
}

const expectTaken = async (answer: Promise<Answer>) =>
  expect(await answer).toMatchObject({ client: 'client-1' })

/** Expects the challenges of a refusal: strings are compared, expressions matched. */
async function expectRefused(
  answer: Answer | Promise<Answer>,
  challenges: readonly (string | RegExp)[],
  status = 401,
) {
  const refusal = (await answer) as Refusal
  expect(refusal).toBeInstanceOf(Refusal)
  expect(refusal.status).toBe(status)
  expect([refusal.headers['WWW-Authenticate']].flat()).toEqual(
    challenges.map((one) => (typeof one === 'string' ? one : expect.stringMatching(one))),
  )
}

const DPOP = 'DPoP realm="test", algs="ES256 PS256 EdDSA Ed25519 RS256"'
const challenge = (error: string, description: string) =>
  `${DPOP}, error="${error}", error_description="${description}"`
const INVALID_PROOF =
  /^DPoP realm="test", algs="[^"]+", error="invalid_dpop_proof", error_description="[ !#-[\]-~]+"$/

describe('a token that is bound to a key', () => {
  it.each(['ES256', 'PS256', 'RS256', 'EdDSA'] satisfies TestAlgorithm[])(
    'a token that is bound to a key is accepted with a proof by that key, signed by %s',
    async (alg) => {
      const key = makeKey(alg)
      const token = bound(key)
      expect(
        await send({ token, proofs: [signProof({ key, token, url: URL })], scheme: 'dpop' }),
      ).toMatchObject({
        client: 'client-1',
        confirmation: { jkt: thumbprintOf(key) },
      })
    },
  )

  it('a token that is bound to a key is accepted repeatedly, each time with a new proof', async () => {
    const token = bound()
    for (let i = 0; i < 3; i++) await expectTaken(send({ token }))
  })

  it('a token that is bound to a key is refused as a bearer token, with or without a proof, cached or not', async () => {
    const token = bound()
    const description = 'The access token is bound to a key; send it as DPoP, with a proof.'
    const refused = [`Bearer realm="test", error="invalid_token", error_description="${description}"`, DPOP]
    await expectRefused(send({ token, scheme: 'Bearer', proofs: [] }), refused)
    await expectRefused(send({ token, scheme: 'Bearer' }), refused)
    await expectTaken(send({ token }))
    await expectRefused(send({ token, scheme: 'Bearer' }), refused)
    await expectRefused(authenticate([`Bearer ${token}`]), refused)
  })

  it('a token that is bound to a key is logged with its client, also for an invalid proof', async () => {
    const token = bound()
    const proofs = [proves(token)]
    await expectTaken(send({ token, proofs }))
    const wrong = [
      { scheme: 'Bearer' },
      { proofs: [] },
      { proofs: [proves(token, { htm: 'PUT' })] },
      { proofs },
    ]
    for (const one of wrong)
      expect(await send({ token, ...one })).toMatchObject({ status: 401, client: 'client-1' })
  })

  it('a token that is bound to a key is refused without a request to check it against', async () => {
    await expectRefused(authenticate([`DPoP ${bound()}`]), [/cannot be checked here/])
  })

  it('a token that is bound to a key is refused if proofs are not verified', async () => {
    const unproved = createServing(trust(issuer, keys))
    const token = bound()
    const request = () => sender([proves(token)])
    await expectRefused(unproved([`Bearer ${token}`], request), [/cannot be checked here/])
    await expectRefused(unproved([`DPoP ${token}`], request), ['Bearer realm="test"'])
  })
})

describe('the DPoP scheme', () => {
  it('the DPoP scheme is offered in addition to Bearer to callers without credentials', async () => {
    await expectRefused(authenticate([]), ['Bearer realm="test"', DPOP])
  })

  it('refuses a token that is not bound to a key', async () => {
    await expectRefused(send({ token: issuer.token() }), [/^DPoP .*, error="invalid_token"/])
  })

  it('the DPoP scheme has its own challenges for invalid tokens', async () => {
    const token = issuer.token({ exp: 1, cnf: { jkt: thumbprintOf(key) } })
    await expectRefused(send({ token }), [challenge('invalid_token', 'The access token expired.')])
    const malformed = challenge('invalid_request', 'Send one Authorization header, with one access token.')
    await expectRefused(send({ token: 'a b', proofs: [] }), [malformed], 400)
  })

  it('requires no proof for a bearer token', () => {
    const never = () => {
      throw new Error('asked')
    }
    expect(authenticate([`Bearer ${issuer.token()}`], never)).toMatchObject({ client: 'client-1' })
  })
})

const seconds = () => Math.floor(Date.now() / 1000)
const privateJwk = key.privateKey.export({ format: 'jwk' })
const publicJwk = { kty: key.jwk.kty, crv: key.jwk.crv, x: key.jwk.x, y: key.jwk.y }

/** Invalid proofs by name, with any token. */
const BAD: Readonly<Record<string, (token: string) => string>> = {
  'no JWS': () => 'proof',
  empty: () => '',
  'two in one header': (token) => `${proves(token)}, ${proves(token)}`,
  'a payload that is not an object': (token) =>
    signJws({ typ: 'dpop+jwt', alg: 'ES256', jwk: publicJwk }, [token], key),
  'too long': (token) => proves(token, { padding: 'a'.repeat(9000) }),
  'no typ': (token) => proves(token, {}, { typ: undefined }),
  'typ JWT': (token) => proves(token, {}, { typ: 'JWT' }),
  'typ of an access token': (token) => proves(token, {}, { typ: 'at+jwt' }),
  'a crit': (token) => proves(token, {}, { crit: ['exp'] }),
  'b64 false': (token) => proves(token, {}, { b64: false }),
  'no alg': (token) => proves(token, {}, { alg: undefined }),
  'alg none': (token) => `${proves(token, {}, { alg: 'none' }).split('.').slice(0, 2).join('.')}.AAAA`,
  'an alg that is not accepted': (token) => proves(token, {}, { alg: 'ES384' }),
  'an HMAC by the public key': (token) => {
    const [, payload] = proves(token).split('.')
    const header = Buffer.from(JSON.stringify({ typ: 'dpop+jwt', alg: 'HS256', jwk: publicJwk }))
    const input = `${header.toString('base64url')}.${payload}`
    return `${input}.${createHmac('sha256', JSON.stringify(publicJwk)).update(input).digest('base64url')}`
  },
  'a symmetric key': (token) => proves(token, {}, { jwk: { kty: 'oct', k: 'AAAA' }, alg: 'HS256' }),
  'no key': (token) => proves(token, {}, { jwk: undefined }),
  'a key that is null': (token) => proves(token, {}, { jwk: null }),
  'a key that is a list': (token) => proves(token, {}, { jwk: [publicJwk] }),
  'a key by reference': (token) => proves(token, {}, { jwk: undefined, kid: key.kid, jku: URL }),
  'a private key': (token) => proves(token, {}, { jwk: privateJwk }),
  'a private key without d': (token) => proves(token, {}, { jwk: { ...publicJwk, p: 'AA' } }),
  'a key without y': (token) => proves(token, {}, { jwk: { ...publicJwk, y: undefined } }),
  'a key with a number for x': (token) => proves(token, {}, { jwk: { ...publicJwk, x: 1 } }),
  'another signature': (token) =>
    `${proves(token).split('.').slice(0, 2).join('.')}.${proves(token).split('.')[2]}`,
  'a signature by another key': (token) =>
    signProof({ key: mallory, token, url: URL, header: { jwk: publicJwk } }),
  'another method': (token) => proves(token, { htm: 'POST' }),
  'the method in lower case': (token) => proves(token, { htm: 'get' }),
  'no method': (token) => proves(token, { htm: undefined }),
  'another path': (token) => proves(token, { htu: 'https://api.example.com/v3/accounts' }),
  'a path in another case': (token) => proves(token, { htu: 'https://api.example.com/V3/transactions' }),
  'a longer path': (token) => proves(token, { htu: `${URL}/` }),
  'an encoded slash': (token) => proves(token, { htu: 'https://api.example.com/v3%2Ftransactions' }),
  'another host': (token) => proves(token, { htu: 'https://evil.example/v3/transactions' }),
  'another port': (token) => proves(token, { htu: 'https://api.example.com:8443/v3/transactions' }),
  'another scheme': (token) => proves(token, { htu: 'http://api.example.com/v3/transactions' }),
  'no host': (token) => proves(token, { htu: '/v3/transactions' }),
  'user information': (token) => proves(token, { htu: 'https://u@api.example.com/v3/transactions' }),
  'a backslash': (token) => proves(token, { htu: 'https://api.example.com\\v3\\transactions' }),
  'a space': (token) => proves(token, { htu: ` ${URL}` }),
  'a line break': (token) => proves(token, { htu: 'https://api.example.com/v3/trans\nactions' }),
  'no URL': (token) => proves(token, { htu: undefined }),
  'a list of URLs': (token) => proves(token, { htu: [URL] }),
  'another token': (token) => proves(token, { ath: 'fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo' }),
  'no token': (token) => proves(token, { ath: undefined }),
  'no jti': (token) => proves(token, { jti: undefined }),
  'an empty jti': (token) => proves(token, { jti: '' }),
  'a jti that is a number': (token) => proves(token, { jti: 1 }),
  'a jti that is too long': (token) => proves(token, { jti: 'a'.repeat(257) }),
  'no iat': (token) => proves(token, { iat: undefined }),
  'an iat that is a string': (token) => proves(token, { iat: String(seconds()) }),
  'an iat too long ago': (token) => proves(token, { iat: seconds() - 62 }),
  'an iat too far ahead': (token) => proves(token, { iat: seconds() + 12 }),
  'an iat beyond all numbers': (token) =>
    signJws(
      { typ: 'dpop+jwt', alg: 'ES256', jwk: publicJwk },
      Buffer.from(`{"jti":"a","htm":"GET","htu":"${URL}","iat":-1e999,"ath":"${ath(token)}"}`),
      key,
    ),
}

function ath(token: string): string {
  const [, payload] = proves(token).split('.')
  return (JSON.parse(Buffer.from(payload!, 'base64url').toString()) as { ath: string }).ath
}

describe('proofs', () => {
  it.each(Object.keys(BAD))('are refused with %s', async (name) => {
    const token = bound()
    await expectRefused(send({ token, proofs: [BAD[name]!(token)] }), [INVALID_PROOF])
  })

  it('proofs are refused where there is none, or more than one', async () => {
    const token = bound()
    const refused = [challenge('invalid_dpop_proof', 'Send one DPoP header, with one proof.')]
    await expectRefused(send({ token, proofs: [] }), refused)
    await expectRefused(send({ token, proofs: [proves(token), proves(token)] }), refused)
  })

  it('proofs are refused by another key than that of the token', async () => {
    const token = bound()
    await expectRefused(send({ token, proofs: [signProof({ key: mallory, token, url: URL })] }), [
      challenge('invalid_token', 'The access token is bound to another key.'),
    ])
  })

  it('proofs are accepted once, even if several are sent at the same time', async () => {
    const token = bound()
    const proofs = [proves(token)]
    const answers = await Promise.all(Array.from({ length: 10 }, () => send({ token, proofs })))
    expect(answers.filter((answer) => !(answer instanceof Refusal))).toHaveLength(1)
    await expectRefused(send({ token, proofs }), [/The DPoP proof was used before\./])
  })

  it('proofs are used up by their jti, and by no other key’s', async () => {
    const token = bound()
    const jti = 'the same'
    await expectTaken(send({ token, proofs: [proves(token, { jti })] }))
    await expectRefused(send({ token, proofs: [proves(token, { jti })] }), [/used before/])
    const other = makeKey('ES256')
    const theirs = bound(other)
    const proofs = [signProof({ key: other, token: theirs, url: URL, claims: { jti } })]
    await expectTaken(send({ token: theirs, proofs }))
    await expectRefused(send({ token, proofs }), [/bound to another key/])
  })

  it('cost no signature until they are to be proved, and are the same each time', async () => {
    const authenticate = createBearer([trust(issuer, keys)], createVerifyProof(hosts))
    const token = bound()
    const prove = async (proof: string) =>
      (await authenticate([`DPoP ${token}`], () => sender([proof]))) as BoundToken
    const good = await prove(proves(token))
    const forged = await prove('x.y.z')
    for (const { identity } of [good, forged]) expect(identity).toMatchObject({ client: 'client-1' })
    expect(await good.prove()).toEqual(await good.prove())
    expect(await forged.prove()).toMatchObject({ status: 401, oauthError: 'invalid_dpop_proof' })
  })

  it('proofs are not used up by a refusal', async () => {
    const token = bound()
    const proofs = [proves(token)]
    await expectRefused(send({ token, proofs, request: { method: 'POST' } }), [INVALID_PROOF])
    await expectTaken(send({ token, proofs }))
  })

  it.each([
    [5000, 10, 11],
    [10_000, 10, 11],
    [30_000, 30, 31],
    [60_000, 60, 61],
    [600_000, 60, 61],
  ])(
    'with a leeway of tokens of %i ms, proofs may be dated %i s ahead, not %i s',
    async (leewayMs, most, more) => {
      const iat = 1_000_000
      const verify = createVerifyProof(hosts, leewayMs)
      onTestFinished(() => void vi.useRealTimers())
      vi.setSystemTime(iat * 1000)
      const token = bound()
      const binding = { jkt: thumbprintOf(key), ath: ath(token) }
      const proofOf = (claims: Members) => verify(binding, sender([proves(token, claims)]))
      // Refused until the youngest accepted proof is too old for another gateway, too.
      const windowMs = 60_000 + 2 * most * 1000
      expect(await proofOf({ iat: iat + most })).toMatchObject({ windowMs })
      const future = `The DPoP proof is dated ${more} s in the future; at most ${most} s are accepted.`
      expect(await proofOf({ iat: iat + more })).toMatchObject({ description: future })
      const old = 'The DPoP proof is 61 s old; at most 60 s are accepted.'
      expect(await proofOf({ iat: iat - 61 })).toMatchObject({ description: old })
      expect(await proofOf({ iat: '1000000' })).toMatchObject({
        description: 'The DPoP proof has no iat that is a number.',
      })
    },
  )

  it('proofs have short ids, and the same window at any time', async () => {
    const iat = 1_000_000
    const verify = createVerifyProof(hosts)
    onTestFinished(() => void vi.useRealTimers())
    vi.setSystemTime(iat * 1000 + 500)
    const token = bound()
    const binding = { jkt: thumbprintOf(key), ath: ath(token) }
    for (const claims of [
      { iat },
      { iat: iat - 59.5 },
      { iat: iat - 0.0007 },
      { iat: iat + 10, jti: 'a'.repeat(256) },
    ]) {
      expect(await verify(binding, sender([proves(token, claims)]))).toEqual({
        id: expect.stringMatching(/^[\w-]{43}$/),
        windowMs: 80_000,
      })
    }
  })

  it('proofs are accepted within their window', async () => {
    const token = bound()
    for (const iat of [seconds() - 50, seconds() + 4, seconds() - 0.5]) {
      await expectTaken(send({ token, proofs: [proves(token, { iat })] }))
    }
  })
})

describe('the URL of a proof', () => {
  it.each<[string, string, Partial<Sender>?]>([
    ['/v3/transactions', URL],
    ['/v3/transactions', `${URL}?from=2026-01-01`],
    ['/v3/transactions', `${URL}#part`],
    ['/v3/transactions', 'HTTPS://API.Example.COM/v3/transactions'],
    ['/v3/transactions', 'https://api.example.com:443/v3/transactions'],
    ['/v3/transactions', 'https://api.example.com/v3/%74ransactions'],
    ['/v3/transactions', 'https://api.example.com/v3/./x/../transactions'],
    ['/v3/id:1', 'https://api.example.com/v3/id%3A1'],
    ['/v3/a%20b', 'https://api.example.com/v3/a%20b'],
    ['/v3/caf%C3%A9', 'https://api.example.com/v3/caf%c3%a9'],
    ["/v3/it's", 'https://api.example.com/v3/it%27s'],
    ['/v3', 'https://api.example.com:8443/v3', { host: 'api.example.com:8443' }],
  ])('the URL of a proof is equal for %s as %s', async (path, htu, request = {}) => {
    const token = bound()
    await expectTaken(send({ token, proofs: [proves(token, { htu })], request: { path, ...request } }))
  })

  it('names a host that is served: a proof for another host is refused, also with that Host header', async () => {
    const token = bound()
    const proofs = [proves(token, { htu: 'https://evil.example/v3/transactions' })]
    await expectRefused(send({ token, proofs, request: { host: 'evil.example' } }), [INVALID_PROOF])
  })
})

describe('a token that is bound to a certificate', () => {
  const client = makeCertificate('client')
  const other = makeCertificate('other')
  const x5t = { 'x5t#S256': client.thumbprint }
  const holding = (der?: Buffer) => ({ certificate: () => der })
  const REFUSED =
    'Bearer realm="test", error="invalid_token", error_description="Send the TLS client certificate that the token is bound to."'

  it('a token that is bound to a certificate is accepted only with that certificate, cached or not', async () => {
    const token = boundBy(x5t)
    const by = (der?: Buffer) => send({ token, scheme: 'Bearer', request: holding(der) })
    expect(await by(client.der)).toMatchObject({ confirmation: { x5t: client.thumbprint } })
    await expectRefused(by(), [REFUSED])
    await expectRefused(by(other.der), [REFUSED])
    await expectTaken(by(client.der))
    await expectRefused(authenticate([`Bearer ${token}`]), [/cannot be checked here/])
  })

  it('a token that is bound to a certificate is not accepted as bound to a key', async () => {
    await expectRefused(send({ token: boundBy(x5t), request: holding(client.der) }), [
      /^DPoP .*error="invalid_token"/,
    ])
  })

  it('a token that is bound to a certificate also needs the proof if it is bound to both', async () => {
    const token = boundBy({ ...x5t, jkt: thumbprintOf(key) })
    await expectTaken(send({ token, request: holding(client.der) }))
    await expectRefused(send({ token, proofs: [], request: holding(client.der) }), [INVALID_PROOF])
    await expectRefused(send({ token, request: holding() }), [/certificate/])
    await expectRefused(send({ token, request: holding(other.der) }), [/certificate/])
    await expectRefused(send({ token, scheme: 'Bearer', request: holding(client.der) }), [/Bearer/, /DPoP/])
  })

  it.each([
    { kid: 'a' },
    { jwk: {} },
    { x5t: client.thumbprint },
    { ...x5t, kid: 'a' },
    { 'x5t#S256': 'short' },
    { 'x5t#S256': [client.thumbprint] },
    { 'x5t#S256': null },
    { 'x5t#S256': `${client.thumbprint}=` },
    { ...x5t, jkt: null },
    {},
    [],
    [client.thumbprint],
  ])(
    'a token that is bound to a certificate is refused if it is bound in an unknown way: %j',
    async (cnf) => {
      await expectRefused(send({ token: boundBy(cnf), scheme: 'Bearer', request: holding(client.der) }), [
        /bound in a way that is not known here/,
      ])
    },
  )
})

describe('with bound: required', () => {
  const certificate = makeCertificate('bound')
  const serve = createServing(trust(issuer, keys, { bound: 'required' }), createVerifyProof(hosts))
  const ask = (scheme: string, token: string, proofs: readonly string[], request: Partial<Sender> = {}) =>
    serve([`${scheme} ${token}`], () => sender(proofs, request))

  it('tokens are accepted with a proof, or with the certificate that they are bound to', async () => {
    const token = bound()
    expect(await ask('DPoP', token, [proves(token)])).toMatchObject({ client: 'client-1' })
    const held = boundBy({ 'x5t#S256': certificate.thumbprint })
    const request = { certificate: () => certificate.der }
    expect(await ask('Bearer', held, [], request)).toMatchObject({ client: 'client-1' })
    expect(await ask('Bearer', held, [])).toMatchObject({ status: 401 })
  })

  it('bearer tokens are refused, with the challenge for DPoP, cached or not', async () => {
    const plain = issuer.token()
    const description = 'The access token must be bound to a key or a certificate.'
    for (let i = 0; i < 3; i++) {
      const refusal = (await ask('Bearer', plain, [proves(plain)])) as Refusal
      expect(refusal).toMatchObject({ status: 401, oauthError: 'invalid_token', message: description })
      expect(refusal.cause).toBe('accepted cnf: jkt, x5t#S256; of the token: none')
      expect(refusal.headers['WWW-Authenticate']).toEqual([
        `Bearer realm="test", error="invalid_token", error_description="${description}"`,
        expect.stringMatching(/^DPoP realm="test", algs="/),
      ])
    }
    const refusal = (await ask('DPoP', plain, [proves(plain)])) as Refusal
    expect(refusal.headers['WWW-Authenticate']).toMatch(
      /^DPoP realm="test", algs="[^"]+", error="invalid_token"/,
    )
    expect(await serve([`Bearer ${boundBy({})}`])).toMatchObject({ status: 401 })
  })

  it('bearer tokens are refused without a challenge for DPoP where no proof can be verified', async () => {
    const withoutProofs = createServing(trust(issuer, keys, { bound: 'required' }))
    const refusal = (await withoutProofs([`Bearer ${issuer.token()}`])) as Refusal
    expect(refusal.headers['WWW-Authenticate']).toMatch(/^Bearer [^,]+, error="invalid_token"/)
  })
})
