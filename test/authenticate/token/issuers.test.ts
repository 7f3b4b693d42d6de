import { describe, expect, it } from 'vitest'
import type { Identity } from '../../../src/authenticate/token/claims.ts'
import type { TrustedIssuer } from '../../../src/authenticate/token/bearer.ts'
import { requireScope } from '../../../src/authenticate/token/challenge.ts'
import { Refusal } from '../../../src/errors.ts'
import { startIssuer, type TestIssuer } from '../../helpers/issuer.ts'
import { until } from '../../helpers/wait.ts'
import { createServing, keysOf, trust } from '../../helpers/trust.ts'

const [first, second] = await Promise.all([
  startIssuer({ algorithms: ['ES256'] }),
  startIssuer({ algorithms: ['ES256'], audience: 'https://second.example.com', path: '/realms/b' }),
])

async function trusted(issuer: TestIssuer, options: Partial<TrustedIssuer> = {}): Promise<TrustedIssuer> {
  const keys = await keysOf(issuer, { cooldownMs: 0 })
  return trust(issuer, keys, { realm: new URL(issuer.issuer).pathname, ...options })
}

function answerOf(refusal: Identity | Refusal): [number, unknown] {
  expect(refusal).toBeInstanceOf(Refusal)
  const { status, headers } = refusal as Refusal
  return [status, headers['WWW-Authenticate']]
}

const refused = (why: string) => [
  401,
  `Bearer realm="/oidc", error="invalid_token", error_description="${why}"`,
]

describe('several issuers', () => {
  it('each have their own keys, audience and client claim', async () => {
    const authenticate = createServing([await trusted(first), await trusted(second, { clientClaim: 'azp' })])
    expect(authenticate([`Bearer ${first.token()}`])).toMatchObject({ client: 'client-1' })
    expect(authenticate([`Bearer ${second.token({ azp: 'party' })}`])).toMatchObject({
      client: `party@${second.issuer}`,
    })
    expect(answerOf(await authenticate([`Bearer ${second.token()}`]))).toEqual(
      refused('The access token does not name a client.'),
    )
    expect(answerOf(await authenticate([`Bearer ${second.token({ aud: first.audience })}`]))).toEqual(
      refused('The access token is for another audience.'),
    )
  })

  it('several issuers have the clients of tokens that are refused named apart', async () => {
    const authenticate = createServing([await trusted(first), await trusted(second)])
    expect(await authenticate([`Bearer ${first.token({ exp: 1 })}`])).toMatchObject({ client: 'client-1' })
    expect(await authenticate([`Bearer ${second.token({ exp: 1 })}`])).toMatchObject({
      client: `client-1@${second.issuer}`,
    })
  })

  it('several issuers cannot sign for each other', async () => {
    const authenticate = createServing([await trusted(first), await trusted(second)])
    const forged = second.token({ iss: first.issuer, aud: first.audience })
    expect(answerOf(await authenticate([`Bearer ${forged}`]))).toEqual(
      refused('The signature of the access token is not valid.'),
    )
    const kid = first.key('ES256').kid
    const withKid = second.token({ iss: first.issuer, aud: first.audience }, { header: { kid } })
    expect(answerOf(await authenticate([`Bearer ${withKid}`]))[0]).toBe(401)
  })

  it('several issuers are the only ones: tokens of others cause no load of keys', async () => {
    const authenticate = createServing([await trusted(first)])
    const before = first.asked.jwks
    for (const iss of [
      second.issuer,
      `${first.issuer}/`,
      undefined,
      null,
      [first.issuer],
      { a: 1 },
      '__proto__',
    ]) {
      expect(answerOf(await authenticate([`Bearer ${second.token({ iss })}`]))).toEqual(
        refused('The issuer is not trusted here.'),
      )
    }
    expect(first.asked.jwks).toBe(before)
  })

  it('several issuers are all in the log, and the audiences of the one whose token it is', async () => {
    const audience = ['https://one.example.com', 'https://two.example.com']
    const authenticate = createServing([await trusted(first), await trusted(second, { audience })])
    const cause = async (token: string) => ((await authenticate([`Bearer ${token}`])) as Refusal).cause
    expect(await cause(first.token({ iss: 'x' }))).toBe(
      `accepted iss: ${first.issuer}, ${second.issuer}; of the token: "x"`,
    )
    expect(await cause(second.token({ aud: first.audience }))).toBe(
      `accepted aud: ${audience.join(', ')}; of the token: "${first.audience}"`,
    )
  })

  it('several issuers are kept apart for cached tokens, too', async () => {
    const both = [await trusted(first), await trusted(second)]
    const authenticate = createServing(both)
    const token = second.token()
    await authenticate([`Bearer ${token}`])
    const known = authenticate([`Bearer ${token}`])
    expect(authenticate([`Bearer ${token}`])).toBe(known)
    second.rotate()
    await both[1]!.keys.refresh()
    expect(answerOf(await authenticate([`Bearer ${token}`]))).toEqual(
      refused('The signature of the access token is not valid.'),
    )
  })

  it('share the realm of the first', async () => {
    const authenticate = createServing([await trusted(second), await trusted(first)])
    expect(answerOf(await authenticate([]))).toEqual([401, 'Bearer realm="/realms/b"'])
  })

  it('send opaque tokens to the one that introspects them, and no JWT', async () => {
    const asked: string[] = []
    const identity: Identity = { client: 'opaque' }
    const introspect = async (token: string) => {
      asked.push(token)
      return { identity, until: Date.now() + 1000 }
    }
    const authenticate = createServing([await trusted(first), await trusted(second, { introspect })])
    const named = { ...identity, client: `opaque@${second.issuer}` }
    expect(await authenticate(['Bearer opaque'])).toEqual(named)
    expect(await authenticate(['Bearer a.b.c'])).toEqual(named)
    expect(await authenticate([`Bearer ${first.token()}`])).toMatchObject({ client: 'client-1' })
    expect(answerOf(await authenticate([`Bearer ${second.token({ iss: 'other' })}`]))[0]).toBe(401)
    expect(answerOf(await authenticate([`Bearer ${second.token({ exp: 1 })}`]))[0]).toBe(401)
    expect(asked).toEqual(['opaque', 'a.b.c'])
  })
})

describe('the keys of an issuer', () => {
  it('the keys of an issuer are followed when they change, without a restart', async () => {
    const authenticate = createServing(await trusted(first))
    const old = first.token()
    expect(authenticate([`Bearer ${old}`])).toMatchObject({ client: 'client-1' })
    first.rotate()
    expect(await authenticate([`Bearer ${first.token()}`])).toMatchObject({ client: 'client-1' })
    expect(answerOf(await authenticate([`Bearer ${old}`]))[0]).toBe(401)
  })

  it('stay in use while the issuer is down, for known tokens and new ones', async () => {
    const authenticate = createServing(await trusted(first))
    const old = first.token()
    await authenticate([`Bearer ${old}`])
    first.fault = 'down'
    const before = first.asked.jwks + first.asked.discovery
    const unknown = second.token({ iss: first.issuer, aud: first.audience })
    // The issuer may have such a key by now.
    expect(answerOf(await authenticate([`Bearer ${unknown}`]))[0]).toBe(503)
    await until('the issuer had no such key', () => first.asked.jwks + first.asked.discovery > before)
    expect(await authenticate([`Bearer ${old}`])).toMatchObject({ client: 'client-1' })
    expect(await authenticate([`Bearer ${first.token()}`])).toMatchObject({ client: 'client-1' })
    first.fault = undefined
  })
})

describe('the scopes of a route', () => {
  const holding = (scope?: string): Identity => ({
    client: 'client-1',
    ...(scope !== undefined && { scope }),
  })

  it.each([
    ['accounts:read', ['accounts:read']],
    ['openid accounts:read transactions:read', ['transactions:read', 'accounts:read']],
    ['anything', []],
    [undefined, []],
  ])('the scopes of a route are all held by a token of %j for %j', (scope, scopes) => {
    expect(requireScope(holding(scope), scopes)).toBeUndefined()
  })

  it.each([
    [undefined, ['accounts:read']],
    ['', ['accounts:read']],
    ['openid', ['accounts:read']],
    ['accounts:read', ['accounts:read', 'transactions:read']],
    ['accounts:reader', ['accounts:read']],
    ['ACCOUNTS:READ', ['accounts:read']],
    ['accounts:read,transactions:read', ['accounts:read']],
    ['accounts:read\ttransactions:read', ['accounts:read']],
    ['accounts', ['accounts:read']],
  ])('the scopes of a route are not all held by a token of %j for %j', (scope, scopes) => {
    const refusal = requireScope(holding(scope), scopes)!
    expect([refusal.status, refusal.oauthError]).toEqual([403, 'insufficient_scope'])
    expect(refusal.headers['WWW-Authenticate']).toBe(
      `Bearer error="insufficient_scope", error_description="${refusal.message}", scope="${scopes.join(' ')}"`,
    )
    expect(refusal.message).toContain(` ${scopes.at(-1)},`)
    expect(refusal.cause).toBe(
      `accepted scope: ${scopes.join(', ')}; of the token: ${JSON.stringify(scope) ?? 'none'}`,
    )
  })

  it('the scopes of a route are required by the scheme of the token', () => {
    const refusal = requireScope({ ...holding('a'), confirmation: { jkt: 'key' } }, ['b'])!
    expect(refusal.headers['WWW-Authenticate']).toMatch(/^DPoP error="insufficient_scope"/)
  })

  it.each<[object, string | undefined]>([
    [{ scope: 'b a' }, 'b a'],
    [{ scope: ['a', 'b'] }, 'a b'],
    [{ scp: ['a', 'b'] }, 'a b'],
    [{ scp: 'a b' }, 'a b'],
    [{ scope: 'a', scp: ['b'] }, 'a'],
    [{ scope: '', scp: 'b' }, ''],
    [{ scope: [], scp: ['b'] }, ''],
    [{ scope: ['a b', 'c', '', 1, ['d'], 'e\tf'] }, 'c'],
    [{ scope: { a: true }, scp: 'a' }, undefined],
    [{ scp: { a: true } }, undefined],
    [{ scopes: ['a'] }, undefined],
  ])('the scopes of a token with %j are %j', async (claims, scope) => {
    const authenticate = createServing([await trusted(first)])
    expect(await authenticate([`Bearer ${first.token(claims as Record<string, unknown>)}`])).toMatchObject({
      client: 'client-1',
      scope,
    })
  })
})
