import { createHmac } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bound, createBearer, type Identity } from '../../../src/authenticate/token/bearer.ts'
import { createProofs, type ProofOptions } from '../../../src/authenticate/proof/dpop.ts'
import type { KeySource } from '../../../src/authenticate/token/jwks.ts'
import type { Sender } from '../../../src/authenticate/proof/sender.ts'
import { Refusal } from '../../../src/errors.ts'
import {
  makeKey,
  signJws,
  signProof,
  startIssuer,
  type TestAlgorithm,
  type TestIssuer,
  type TestKey,
  thumbprintOf,
} from '../../helpers/issuer.ts'
import { createServing, keysOf, trust } from '../../helpers/trust.ts'

const URL = 'https://api.example.com/v3/transactions'
const key = makeKey('ES256')
const mallory = makeKey('ES256')
let issuer: TestIssuer
let keys: KeySource
let authenticate: ReturnType<typeof createServing>

beforeAll(async () => {
  issuer = await startIssuer({ algorithms: ['ES256'] })
  keys = await keysOf(issuer)
  authenticate = serving()
})
afterAll(async () => {
  keys.close()
  await issuer.close()
})

const proofs = (options: Partial<ProofOptions> = {}) =>
  createProofs({ serves: (host) => host === 'api.example.com', ...options })
const serving = (options?: Partial<ProofOptions>) =>
  createServing(trust(issuer, keys), { proofs: proofs(options) })

function sender(
  proofs: readonly string[],
  method = 'GET',
  host = 'api.example.com',
  path = '/v3/transactions',
): () => Sender {
  return () => ({ method, scheme: 'https', host, path, proofs, certificate: () => undefined })
}

const bound = (to: TestKey = key) => issuer.token({ cnf: { jkt: thumbprintOf(to) } })

/** One request with a bound token and whatever proofs `make` gives for it. */
async function send(
  make: (token: string) => readonly string[],
  by = authenticate,
): Promise<Identity | Refusal> {
  const token = bound()
  return by([`DPoP ${token}`], sender(make(token)))
}

function challengeOf(refusal: Identity | Refusal): readonly string[] {
  expect(refusal).toBeInstanceOf(Refusal)
  const { status, headers } = refusal as Refusal
  return [String(status), ...[headers['WWW-Authenticate'] ?? []].flat()]
}

const DPOP = 'DPoP realm="test", algs="ES256 PS256 EdDSA Ed25519 RS256"'

describe('a token that is bound to a key', () => {
  it('is taken with a proof of that key', async () => {
    const token = bound()
    const proof = signProof({ key, token, url: URL })
    expect(await authenticate([`DPoP ${token}`], sender([proof]))).toMatchObject({
      client: 'client-1',
      confirmation: { jkt: thumbprintOf(key) },
    })
  })

  it.each(['ES256', 'PS256', 'RS256', 'EdDSA'] satisfies TestAlgorithm[])(
    'is taken with a proof signed by %s',
    async (alg) => {
      const key = makeKey(alg)
      const token = bound(key)
      const request = sender([signProof({ key, token, url: URL })])
      expect(await authenticate([`dpop ${token}`], request)).toMatchObject({ client: 'client-1' })
    },
  )

  it('is taken again and again, each time with a new proof', async () => {
    const token = bound()
    for (let i = 0; i < 3; i++) {
      const request = sender([signProof({ key, token, url: URL })])
      expect(await authenticate([`DPoP ${token}`], request)).toMatchObject({ client: 'client-1' })
    }
  })

  it('is refused as a bearer token, with or without a proof, known or not', async () => {
    const token = bound()
    const refused = [
      '401',
      'Bearer realm="test", error="invalid_token", error_description="The access token is bound to a key; send it as a DPoP token, with a proof."',
      DPOP,
    ]
    const proof = () => signProof({ key, token, url: URL })
    expect(challengeOf(await authenticate([`Bearer ${token}`], sender([])))).toEqual(refused)
    expect(challengeOf(await authenticate([`Bearer ${token}`], sender([proof()])))).toEqual(refused)
    await authenticate([`DPoP ${token}`], sender([proof()]))
    expect(challengeOf(await authenticate([`Bearer ${token}`], sender([proof()])))).toEqual(refused)
    expect(challengeOf(await authenticate([`Bearer ${token}`]))).toEqual(refused)
  })

  it('is refused where nothing is known of the request', async () => {
    expect(challengeOf(await authenticate([`DPoP ${bound()}`]))[0]).toBe('401')
  })

  it('is refused where proofs are not verified', async () => {
    const authenticate = createServing(trust(issuer, keys))
    const token = bound()
    expect(challengeOf(await authenticate([`Bearer ${token}`], sender([])))).toEqual([
      '401',
      expect.stringContaining('which cannot be checked here'),
    ])
    const request = sender([signProof({ key, token, url: URL })])
    expect(challengeOf(await authenticate([`DPoP ${token}`], request))).toEqual([
      '401',
      'Bearer realm="test"',
    ])
  })
})

describe('the DPoP scheme', () => {
  it('is announced beside Bearer to those who send nothing', () => {
    expect(challengeOf(authenticate([]) as Refusal)).toEqual(['401', 'Bearer realm="test"', DPOP])
  })

  it('does not take a token that is bound to no key', async () => {
    const token = issuer.token()
    expect(
      challengeOf(await authenticate([`DPoP ${token}`], sender([signProof({ key, token, url: URL })]))),
    ).toEqual(['401', expect.stringMatching(/^DPoP .*, error="invalid_token"/)])
    expect(authenticate([`Bearer ${token}`], sender([]))).toMatchObject({ client: 'client-1' })
  })

  it('has its own challenges for tokens that are no good', async () => {
    const token = issuer.token({ exp: 1, cnf: { jkt: thumbprintOf(key) } })
    expect(challengeOf(await authenticate([`DPoP ${token}`], sender([])))).toEqual([
      '401',
      `${DPOP}, error="invalid_token", error_description="The access token expired."`,
    ])
    expect(challengeOf(await authenticate(['DPoP a b'], sender([])))).toEqual([
      '400',
      `${DPOP}, error="invalid_request", error_description="The Authorization header is malformed."`,
    ])
  })

  it('asks for nothing of a bearer token', () => {
    const never = () => {
      throw new Error('asked')
    }
    expect(authenticate([`Bearer ${issuer.token()}`], never)).toMatchObject({ client: 'client-1' })
  })
})

const seconds = () => Math.floor(Date.now() / 1000)
const proves = (
  token: string,
  claims: Readonly<Record<string, unknown>> = {},
  header: Readonly<Record<string, unknown>> = {},
) => signProof({ key, token, url: URL, claims, header })
const privateJwk = key.privateKey.export({ format: 'jwk' })
const publicJwk = { kty: key.jwk.kty, crv: key.jwk.crv, x: key.jwk.x, y: key.jwk.y }

/** Everything that is wrong with a proof alone. */
const BAD: Readonly<Record<string, (token: string) => string>> = {
  'no JWS': () => 'proof',
  empty: () => '',
  'two in one header': (token) => `${proves(token)}, ${proves(token)}`,
  'a payload that is no object': (token) =>
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
  'an iat too far ahead': (token) => proves(token, { iat: seconds() + 7 }),
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
    expect(challengeOf(await send((token) => [BAD[name]!(token)]))).toEqual([
      '401',
      expect.stringMatching(
        /^DPoP realm="test", algs="[^"]+", error="invalid_dpop_proof", error_description="[ !#-[\]-~]+"$/,
      ),
    ])
  })

  it('are refused where there is none, or more than one', async () => {
    const refused = [
      '401',
      `${DPOP}, error="invalid_dpop_proof", error_description="Send one DPoP header, with one proof."`,
    ]
    expect(challengeOf(await send(() => []))).toEqual(refused)
    expect(challengeOf(await send((token) => [proves(token), proves(token)]))).toEqual(refused)
  })

  it('are refused by another key than that of the token', async () => {
    const refusal = await send((token) => [signProof({ key: mallory, token, url: URL })])
    expect(challengeOf(refusal)).toEqual([
      '401',
      `${DPOP}, error="invalid_token", error_description="The access token is bound to another key."`,
    ])
  })

  it('are good once', async () => {
    const token = bound()
    const request = sender([proves(token)])
    expect(await authenticate([`DPoP ${token}`], request)).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await authenticate([`DPoP ${token}`], request))).toEqual([
      '401',
      expect.stringContaining('The DPoP proof was used before.'),
    ])
  })

  it('are good once, of several sent at the same time', async () => {
    const token = bound()
    const request = sender([proves(token)])
    const answers = await Promise.all(
      Array.from({ length: 10 }, async () => await authenticate([`DPoP ${token}`], request)),
    )
    expect(answers.filter((answer) => !(answer instanceof Refusal))).toHaveLength(1)
  })

  it('are used up by their jti, and by no other key’s', async () => {
    const token = bound()
    const jti = 'the same'
    expect(await send((token) => [proves(token, { jti })])).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await send((token) => [proves(token, { jti })]))[0]).toBe('401')
    const other = makeKey('ES256')
    const theirs = bound(other)
    const proof = signProof({ key: other, token: theirs, url: URL, claims: { jti } })
    expect(await authenticate([`DPoP ${theirs}`], sender([proof]))).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await authenticate([`DPoP ${token}`], sender([proof])))[0]).toBe('401')
  })

  it('cost no signature until they are to be proved, and are the same each time', async () => {
    const authenticate = createBearer([trust(issuer, keys)], { proofs: proofs() })
    const token = bound()
    const good = (await authenticate([`DPoP ${token}`], sender([proves(token)]))) as Bound
    const forged = (await authenticate([`DPoP ${token}`], sender(['x.y.z']))) as Bound
    expect([good, forged]).toMatchObject([
      { identity: { client: 'client-1' } },
      { identity: { client: 'client-1' } },
    ])
    expect(await good.prove()).toEqual(await good.prove())
    expect(await forged.prove()).toMatchObject({ status: 401, oauthError: 'invalid_dpop_proof' })
  })

  it('are not used up by a refusal', async () => {
    const token = bound()
    const proof = proves(token)
    expect(challengeOf(await authenticate([`DPoP ${token}`], sender([proof], 'POST')))[0]).toBe('401')
    expect(await authenticate([`DPoP ${token}`], sender([proof]))).toMatchObject({ client: 'client-1' })
  })

  it('have short ids, and are remembered equally long whenever they come', async () => {
    const remembering = createBearer([trust(issuer, keys)], { proofs: proofs({ now: () => 1_000_000_500 }) })
    const iat = 1_000_000
    const exp = seconds() + 60
    const token = issuer.token({ cnf: { jkt: thumbprintOf(key) }, exp })
    const windows: number[] = []
    for (const claims of [
      { iat },
      { iat: iat - 59.5 },
      { iat: iat - 0.0007 },
      { iat: iat + 5, jti: 'a'.repeat(256) },
    ]) {
      const known = (await remembering([`DPoP ${token}`], sender([proves(token, claims)]))) as Bound
      const proof = await known.prove()
      if (proof instanceof Refusal) throw proof
      expect(proof.id).toMatch(/^[\w-]{43}$/)
      windows.push(proof.windowMs)
    }
    expect(windows).toEqual([70_000, 70_000, 70_000, 70_000])
  })

  it('are taken within their window', async () => {
    for (const iat of [seconds() - 50, seconds() + 4, seconds() - 0.5]) {
      expect(await send((token) => [proves(token, { iat })])).toMatchObject({ client: 'client-1' })
    }
  })
})

describe('the URL of a proof', () => {
  it.each([
    URL,
    `${URL}?from=2026-01-01`,
    `${URL}#part`,
    'HTTPS://API.Example.COM/v3/transactions',
    'https://api.example.com:443/v3/transactions',
    'https://api.example.com/v3/%74ransactions',
    'https://api.example.com/v3/./x/../transactions',
  ])('is equal as %s', async (htu) => {
    expect(await send((token) => [proves(token, { htu })])).toMatchObject({ client: 'client-1' })
  })

  it.each([
    ['/v3/id:1', 'https://api.example.com/v3/id%3A1'],
    ['/v3/a%20b', 'https://api.example.com/v3/a%20b'],
    ['/v3/caf%C3%A9', 'https://api.example.com/v3/caf%c3%a9'],
    ["/v3/it's", 'https://api.example.com/v3/it%27s'],
  ])('is equal for %s as %s', async (path, htu) => {
    const token = bound()
    const request = sender([proves(token, { htu })], 'GET', 'api.example.com', path)
    expect(await authenticate([`DPoP ${token}`], request)).toMatchObject({ client: 'client-1' })
  })

  it('is that of the Host header, with its port', async () => {
    const token = bound()
    const request = sender(
      [proves(token, { htu: 'https://api.example.com:8443/v3/transactions' })],
      'GET',
      'api.example.com:8443',
    )
    expect(await authenticate([`DPoP ${token}`], request)).toMatchObject({ client: 'client-1' })
  })

  it('names a host that is served, lest a proof made for somebody else pass with their Host header', async () => {
    const token = bound()
    const request = sender(
      [proves(token, { htu: 'https://evil.example/v3/transactions' })],
      'GET',
      'evil.example',
    )
    expect(challengeOf(await authenticate([`DPoP ${token}`], request))).toEqual([
      '401',
      expect.stringContaining('error="invalid_dpop_proof"'),
    ])
  })
})
