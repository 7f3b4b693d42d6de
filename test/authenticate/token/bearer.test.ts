import { invalidToken } from '../../../src/authenticate/jose/credentials-error.ts'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import {
  type Authenticate,
  createBearer,
  createDoorkeeper,
  type TrustedIssuer,
} from '../../../src/authenticate/token/bearer.ts'
import type { Keys } from '../../../src/authenticate/token/jwks.ts'
import { type KeySet, readKeySet } from '../../../src/authenticate/jose/key-set.ts'
import { Refusal } from '../../../src/errors.ts'
import { makeKey, startIssuer } from '../../helpers/issuer.ts'
import { trust } from '../../helpers/trust.ts'

const issuer = await startIssuer()

/** Creates a key source with given keys that counts its refreshes. */
function held(first: KeySet | undefined, next?: KeySet): Keys & { set: KeySet | undefined; asked: number } {
  const source = {
    set: first,
    asked: 0,
    isStale: () => false,
    current: () => source.set,
    refresh() {
      source.asked++
      if (next === undefined) return undefined
      source.set = next
      return Promise.resolve(next)
    },
  }
  return source
}

async function bearer(options: Partial<TrustedIssuer> = {}): Promise<Authenticate> {
  const keys = held(await readKeySet(issuer.jwks))
  const trusted = trust(issuer, keys, { realm: 'identity.example.com', ...options })
  return createBearer([trusted])
}

function answer(refusal: unknown): { status: number; challenge: unknown; code: string; description: string } {
  expect(refusal).toBeInstanceOf(Refusal)
  const { status, headers, code, message } = refusal as Refusal
  return { status, challenge: headers['WWW-Authenticate'], code, description: message }
}

describe('the answers of RFC 6750', () => {
  it('identifies the caller', async () => {
    const exp = Math.floor(Date.now() / 1000) + 60
    const token = issuer.token({ sub: 'user-1', scope: 'a b', exp })
    expect((await bearer())([`Bearer ${token}`])).toEqual({
      client: 'client-1',
      user: 'user-1',
      scope: 'a b',
    })
  })

  it.each(['bearer', 'BEARER', 'BeArEr', 'Bearer  '])('accepts the scheme as %j', async (scheme) => {
    expect((await bearer())([`${scheme} ${issuer.token()}`])).toMatchObject({ client: 'client-1' })
  })

  it.each([
    [[]],
    [['']],
    [['Basic Y2xpZW50OnNlY3JldA==']],
    [['DPoP abc']],
    [['Bearers abc']],
    [['Bearer: a']],
  ])('challenges %j without an error code, and names what to send', async (authorization) => {
    const message = 'Send an access token as "Authorization: Bearer TOKEN", not in the query.'
    const refusal = (await bearer())(authorization)
    expect(answer(refusal)).toMatchObject({
      status: 401,
      code: 'Unauthorized',
      challenge: 'Bearer realm="identity.example.com"',
    })
    expect(refusal).toMatchObject({ message })
  })

  it.each([
    [['Bearer a.b.c', 'Bearer a.b.c']],
    [['Bearer a.b.c', 'Basic abc']],
    [['Bearer']],
    [['Bearer a.b.c, Bearer d.e.f']],
    [['Bearer a b']],
    [['Bearer a\tb']],
    [['Bearer "a.b.c"']],
    [['Bearer =']],
    [['Bearer a=b']],
    [['Bearer tökén']],
  ])('calls %j a bad request', async (authorization) => {
    const { status, code, challenge, description } = answer((await bearer())(authorization))
    expect([status, code]).toEqual([400, 'BadRequest'])
    expect(challenge).toBe(
      `Bearer realm="identity.example.com", error="invalid_request", error_description="${description}"`,
    )
  })

  it('describes the error of a token to the caller', async () => {
    expect(answer((await bearer())([`Bearer ${issuer.token({ exp: 1 })}`]))).toEqual({
      status: 401,
      code: 'Unauthorized',
      challenge:
        'Bearer realm="identity.example.com", error="invalid_token", error_description="The access token expired."',
      description: 'The access token expired.',
    })
  })

  it('logs the times of a refused token, and its own', async () => {
    const now = Math.floor(Date.now() / 1000)
    const authenticate = await bearer()
    const cause = (claims: object) =>
      (authenticate([`Bearer ${issuer.token({ iat: now, ...claims })}`]) as Refusal).cause
    expect(cause({ nbf: now + 118 })).toMatch(
      new RegExp(`^times: {"iat":${now},"nbf":${now + 118},"exp":\\d+,"now":\\d+}$`),
    )
    expect(cause({ exp: now - 30 })).toContain(`"exp":${now - 30},`)
  })

  it('logs the issuers or audiences that are accepted, and those of a token for another', async () => {
    const authenticate = await bearer()
    const cause = (claims: object) =>
      (authenticate([`Bearer ${issuer.token({ ...claims })}`]) as Refusal).cause
    const accepted = `accepted aud: ${issuer.audience}`
    expect(cause({ aud: undefined })).toBe(`${accepted}; of the token: none`)
    expect(cause({ aud: ['a', 'b'] })).toBe(`${accepted}; of the token: ["a","b"]`)
    expect(cause({ iss: null })).toBe(`accepted iss: ${issuer.issuer}; of the token: none`)
  })

  it('logs the client of a refused token only if its signature is valid', async () => {
    const authenticate = await bearer()
    const refused = (token: string) => authenticate([`Bearer ${token}`]) as Refusal
    const audience = issuer.token({ aud: 'https://other.example.com' })
    for (const token of [issuer.token({ exp: 1 }), audience])
      expect(refused(token)).toMatchObject({ status: 401, client: 'client-1' })
    const forged = `${audience.slice(0, audience.lastIndexOf('.'))}.${'A'.repeat(86)}`
    expect(refused(forged)).toMatchObject({ status: 401, client: undefined })
    expect(refused(issuer.token({ exp: 1, client_id: 'x'.repeat(256) })).client).toBeUndefined()
  })

  it('quotes the realm', async () => {
    const refusal = (await bearer({ realm: 'a "b" \\ c' }))([])
    expect(answer(refusal).challenge).toBe('Bearer realm="a \\"b\\" \\\\ c"')
  })

  it('answers 503 while there are no keys at all', async () => {
    const authenticate = await bearer({ keys: held(undefined) })
    const refusal = authenticate([`Bearer ${issuer.token()}`]) as Refusal
    expect([refusal.status, refusal.headers]).toEqual([503, { 'Retry-After': '1' }])
    expect(answer(authenticate([])).status).toBe(401)
    expect(answer(authenticate(['Bearer nonsense'])).status).toBe(401)
  })

  it('reads the client from the claim that is configured', async () => {
    const authenticate = await bearer({ clientClaim: 'azp' })
    expect(authenticate([`Bearer ${issuer.token({ azp: 'party' })}`])).toMatchObject({ client: 'party' })
    expect(answer(authenticate([`Bearer ${issuer.token()}`])).status).toBe(401)
  })

  it('accepts any of several audiences', async () => {
    const authenticate = await bearer({ audience: ['https://other.example.com', issuer.audience] })
    expect(authenticate([`Bearer ${issuer.token()}`])).toMatchObject({ client: 'client-1' })
  })
})

describe('introspection', () => {
  let introspected: string[]
  const looking = () =>
    bearer({ introspect: (token) => (introspected.push(token), invalidToken('It was introspected.')) })
  beforeEach(() => (introspected = []))

  it.each<[string, (token: string) => string]>([
    ['a token with padding', (token) => `${token}=`],
    ['a token with a fourth part', (token) => `${token}.AAAA`],
    ['a token without a signature', (token) => token.replace(/[^.]+$/, '')],
    ['a token with spare bits in its signature', (token) => token.replace(/[AQgw]$/, (end) => SPARE[end]!)],
    ['a token with a foreign character', (token) => token.replace('.', '+.')],
    ['a token whose header is not JSON', (token) => token.replace(/^eyJ/, 'eyJK')],
    ['a token whose payload is not JSON', (token) => token.replace(/\.[^.]+/, '.AAAA')],
  ])('is not %s, which is a JWT', async (_, spoil) => {
    const authenticate = await looking()
    const good = issuer.token({}, { alg: 'RS256' })
    const token = spoil(good)
    expect(token).not.toBe(good)
    expect(answer(authenticate([`Bearer ${token}`])).status).toBe(401)
    expect(introspected).toEqual([])
  })

  it.each(['abc', 'a.b.c', 'eyJabc', 'eyJabc.def', 'eyJhbGciOiJkaXIifQ..AAAA.AAAA.AAAA', 'abc.eyJ.def'])(
    'is %s, which is none',
    async (token) => {
      const authenticate = await looking()
      expect(answer(authenticate([`Bearer ${token}`])).description).toBe('It was introspected.')
      expect(introspected).toEqual([token])
    },
  )
})

/** Last characters of 256 bytes in base64url, and others that decoders treat as equal. */
const SPARE: Readonly<Record<string, string>> = { A: 'B', Q: 'R', g: 'h', w: 'x' }

describe('keys that are not known yet', () => {
  it('loads them once and verifies with the result', async () => {
    const key = makeKey('ES256')
    const keys = held(await readKeySet(issuer.jwks), await readKeySet({ keys: [key.jwk] }))
    const authenticate = await bearer({ keys })
    const identity = authenticate([`Bearer ${issuer.token({}, { key })}`])
    expect(identity).toBeInstanceOf(Promise)
    expect(await identity).toMatchObject({ client: 'client-1' })
    expect(keys.asked).toBe(1)
  })

  it('does not read them for a token that a known key verifies, also if the token is otherwise invalid', async () => {
    const keys = held(await readKeySet(issuer.jwks))
    const authenticate = await bearer({ keys })
    await authenticate([`Bearer ${issuer.token()}`])
    await authenticate([`Bearer ${issuer.token({ aud: 'other' })}`])
    await authenticate([`Bearer ${issuer.token({}, { header: { typ: 'logout+jwt' } })}`])
    await authenticate([`Bearer ${issuer.token({}, { header: { alg: 'HS256' } })}`])
    expect(keys.asked).toBe(0)
  })

  it('refuses at once while it is too early to read them again', async () => {
    const authenticate = await bearer()
    expect(answer(authenticate([`Bearer ${issuer.token({}, { key: makeKey('ES256') })}`])).status).toBe(401)
  })
})

describe('the cache of verified tokens', () => {
  /** Gets a token cached. */
  async function twice(authenticate: Authenticate, token: string) {
    await authenticate([`Bearer ${token}`])
    return authenticate([`Bearer ${token}`])
  }

  it('begins with the second use, so that tokens sent once evict none', async () => {
    const authenticate = await bearer()
    const token = issuer.token()
    const first = authenticate([`Bearer ${token}`])
    const second = authenticate([`Bearer ${token}`])
    expect(second).toEqual(first)
    expect(second).not.toBe(first)
    expect(authenticate([`bearer ${token}`])).toBe(second)
  })

  it('begins again after 16,384 tokens: few of them share a bit', () => {
    const isRepeated = createDoorkeeper()
    const [first] = Array.from({ length: 16_385 }, (_, i) => {
      const signature = Buffer.alloc(64)
      signature.writeUInt32LE(i * 4096)
      isRepeated(signature)
      return signature
    })
    expect(isRepeated(first!)).toBe(false)
    expect(isRepeated(first!)).toBe(true)
  })

  it('caches all of many that are sent in turn', async () => {
    const authenticate = await bearer()
    const tokens = Array.from({ length: 400 }, () => issuer.token({}, { alg: 'ES256' }))
    const round = () => Promise.all(tokens.map(async (token) => authenticate([`Bearer ${token}`])))
    await round()
    const second = await round()
    for (const [i, identity] of (await round()).entries()) expect(identity).toBe(second[i])
  })

  it('never identifies a token by a part of it', async () => {
    const authenticate = await bearer()
    const token = issuer.token()
    await twice(authenticate, token)
    const [head, payload, signature] = token.split('.') as [string, string, string]
    const other = issuer.token({ client_id: 'client-2' }).split('.') as [string, string, string]
    for (const forged of [
      `${head}.${other[1]}.${signature}`,
      `${head}.${payload}.${other[2]}`,
      `${head}.${payload}.${signature.slice(0, -4)}AAAA`,
      `${token}=`,
      `${token}.`,
      token.slice(0, -1),
    ]) {
      expect(answer(authenticate([`Bearer ${forged}`])).status).toBe(401)
    }
  })

  it('distinguishes opaque tokens with the same end', async () => {
    const exp = Date.now() + 60_000
    const introspect = vi.fn((token: string) =>
      Promise.resolve({ identity: { client: token.slice(0, 1) }, until: exp }),
    )
    const authenticate = await bearer({ introspect })
    const end = 'x'.repeat(60)
    for (const client of ['a', 'b', 'a', 'b'])
      expect(await twice(authenticate, `${client}${end}`)).toEqual({ client })
    expect(introspect).toHaveBeenCalledTimes(2)
  })

  it('ends at exp plus the leeway', async () => {
    let now = Date.now()
    const clock = vi.spyOn(Date, 'now').mockImplementation(() => now)
    onTestFinished(() => clock.mockRestore())
    const authenticate = await bearer()
    const exp = Math.floor(now / 1000) + 60
    const token = issuer.token({ exp })
    const first = await twice(authenticate, token)
    now = exp * 1000 - 1
    expect(authenticate([`Bearer ${token}`])).toBe(first)
    now = exp * 1000 + 4999
    expect(authenticate([`Bearer ${token}`])).toMatchObject({ client: 'client-1' })
    now = exp * 1000 + 5000
    expect(answer(authenticate([`Bearer ${token}`])).description).toBe('The access token expired.')
  })

  it('ends when the issuer withdraws the key, and no sooner', async () => {
    const keys = held(await readKeySet(issuer.jwks))
    const authenticate = await bearer({ keys })
    const token = issuer.token({}, { alg: 'ES256' })
    const first = await twice(authenticate, token)
    const others = [issuer.key('ES256').jwk, makeKey('RS256').jwk]
    keys.set = await readKeySet(issuer.jwks, keys.set)
    expect(authenticate([`Bearer ${token}`])).toBe(first)
    keys.set = await readKeySet({ keys: others }, keys.set)
    expect(authenticate([`Bearer ${token}`])).toEqual(first)
    keys.set = await readKeySet({ keys: others.slice(1) }, keys.set)
    expect(answer(authenticate([`Bearer ${token}`])).status).toBe(401)
    keys.set = undefined
    expect(answer(authenticate([`Bearer ${token}`])).status).toBe(503)
  })

  it('caches no refusal', async () => {
    const key = makeKey('PS256')
    const keys = held(await readKeySet(issuer.jwks))
    const authenticate = await bearer({ keys })
    const token = issuer.token({}, { key })
    expect(answer(authenticate([`Bearer ${token}`])).status).toBe(401)
    keys.set = await readKeySet({ keys: [key.jwk] })
    expect(authenticate([`Bearer ${token}`])).toMatchObject({ client: 'client-1' })
  })
})
