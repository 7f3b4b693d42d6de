import { hash, randomUUID } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { BoundToken } from '../../../src/authenticate/token/challenge.ts'
import { createBearer } from '../../../src/authenticate/token/bearer.ts'
import type { Identity } from '../../../src/authenticate/token/claims.ts'
import {
  createIntrospection,
  type IntrospectionOptions,
} from '../../../src/authenticate/token/introspection.ts'
import { Refusal } from '../../../src/errors.ts'
import { trust } from '../../helpers/trust.ts'
import { until } from '../../helpers/wait.ts'
import {
  type Answer,
  type IntrospectionServer,
  startIntrospection,
} from '../../helpers/introspection-server.ts'

const ISSUER = 'https://identity.example.com/oidc'
const AUDIENCE = 'https://api.example.com'
const DIGEST = hash('sha256', 'a key or a certificate', 'base64url')
/** The clock of the askers, wherever the day's is meanwhile. */
const START = Date.now()
let server: IntrospectionServer
let events: string[]
let now: number

beforeEach(async () => {
  server = await startIntrospection()
  events = []
  now = START
  vi.spyOn(Date, 'now').mockImplementation(() => now)
})
afterEach(() => void vi.restoreAllMocks())

const seconds = () => Math.floor(now / 1000)
const active = (members: object = {}) => ({
  active: true,
  iss: ISSUER,
  aud: AUDIENCE,
  client_id: 'client-1',
  token_type: 'Bearer',
  exp: seconds() + 300,
  ...members,
})

type Answered = Identity | BoundToken | Refusal

function introspection(options: Partial<IntrospectionOptions> = {}) {
  return createIntrospection({
    url: server.url,
    clientId: 'gateway',
    clientSecret: 'secret',
    issuer: ISSUER,
    audience: [AUDIENCE],
    clientClaim: 'client_id',
    leewayMs: 5000,
    timeoutMs: 3000,
    events: { onDown: ({ message: reason }) => events.push(reason), onUp: () => events.push('recovered') },
    ...options,
  })
}

/** Sends bearer tokens, by default new ones. */
function asker(options: Partial<IntrospectionOptions> = {}): (token?: string) => Promise<Answered> {
  const introspect = introspection(options)
  const keys = { current: () => undefined, refresh: () => undefined, isStale: () => false }
  const trusted = trust({ issuer: ISSUER, audience: AUDIENCE }, keys, { introspect })
  const authenticate = createBearer([trusted])
  return async (token = randomUUID()) => authenticate([`Bearer ${token}`])
}

const isRefused = (answer: Answered): boolean => answer instanceof Refusal
const statusOf = (answer: Answered) => (answer instanceof Refusal ? answer.status : answer)
const causeOf = (answer: Answered) => String((answer as Refusal).cause)
const refusedAs = (message: string): unknown => expect.objectContaining({ status: 401, message })

describe('the question', () => {
  it('the question is a form with the token, and client authentication with both halves form-encoded', async () => {
    const token = 'a+b/c~d.e_f-='
    await asker({ clientId: 'the gateway', clientSecret: 'a secret: with/some %signs & ümlauts' })(token)
    const [{ authorization, form, request }] = server.asked as [(typeof server.asked)[number]]
    expect([request.method, request.url]).toEqual(['POST', '/introspect'])
    expect(request.headers['content-type']).toBe('application/x-www-form-urlencoded')
    expect(form).toEqual({ token, token_type_hint: 'access_token' })
    expect(Buffer.from(authorization!.replace('Basic ', ''), 'base64').toString()).toBe(
      'the+gateway:a+secret%3A+with%2Fsome+%25signs+%26+%C3%BCmlauts',
    )
  })
})

describe('the credentials of the gateway', () => {
  it('the credentials of the gateway are in the form with authentication: post', async () => {
    await asker({ authentication: 'post', clientSecret: 'a+b' })('token')
    const [{ authorization, form }] = server.asked as [(typeof server.asked)[number]]
    expect(authorization).toBeUndefined()
    expect(form).toEqual({
      ...{ token: 'token', token_type_hint: 'access_token' },
      ...{ client_id: 'gateway', client_secret: 'a+b' },
    })
  })

  it('the credentials of the gateway are an access token with authentication: bearer', async () => {
    await asker({ authentication: 'bearer', clientId: undefined, clientSecret: 'own.token' })('token')
    const [{ authorization, form }] = server.asked as [(typeof server.asked)[number]]
    expect(authorization).toBe('Bearer own.token')
    expect(form).toEqual({ token: 'token', token_type_hint: 'access_token' })
  })
})

describe('an active token', () => {
  it('an active token gives the claims that limits read', async () => {
    server.answer = active({ plan: 'gold', other: 'x' })
    expect(await asker({ keeps: ['plan', 'absent'] })()).toMatchObject({ claims: { plan: 'gold' } })
  })

  it('an active token names the caller', async () => {
    server.answer = active({ sub: 'user-1', scope: 'a b', username: 'ignored', nbf: seconds() - 5 })
    expect(await asker()()).toEqual({
      client: 'client-1',
      user: 'user-1',
      scope: 'a b',
    })
  })

  it.each([
    ['no iss', { iss: undefined }],
    ['no exp', { exp: undefined }],
    ['no token_type', { token_type: undefined }],
    ['a token_type in lower case', { token_type: 'bearer' }],
    ['several audiences', { aud: ['https://other.example.com', AUDIENCE] }],
    [
      'members that are null',
      { exp: null, iat: null, nbf: null, sub: null, iss: null, token_type: null, cnf: null },
    ],
    ['no aud', { aud: undefined }],
    ['an aud that is null', { aud: null }],
    ['an empty aud', { aud: [] }],
    ['no aud, but a token_use', { aud: undefined, token_type: undefined, token_use: 'access_token' }],
    ['a list of scopes', { scope: ['a', 'b'] }],
    ['an exp within the leeway', { exp: START / 1000 - 2 }],
  ])('an active token is accepted with %s', async (_, members) => {
    server.answer = active(members)
    expect(await asker()()).toMatchObject({ client: 'client-1' })
  })

  it('a refused token is logged with its client if it is active, and without a client if not', async () => {
    server.answer = active({ aud: 'https://other.example.com' })
    expect(await asker()()).toMatchObject({ status: 401, client: 'client-1' })
    server.answer = { active: false, client_id: 'client-1' }
    expect(await asker()()).toMatchObject({ status: 401, client: undefined })
  })

  it('an active token keeps its binding', async () => {
    server.answer = active({ token_type: 'DPoP', cnf: { jkt: DIGEST } })
    expect(await introspection()('a token')).toMatchObject({
      identity: { client: 'client-1', confirmation: { jkt: DIGEST } },
    })
  })

  it('an active token names the client by the claim that is configured', async () => {
    server.answer = active({ azp: 'party' })
    expect(await asker({ clientClaim: 'azp' })()).toMatchObject({ client: 'party' })
  })
})

const NOT_ACTIVE = 'The access token is not active.'
const ELSEWHERE = 'The access token is for another audience.'
const NO_EXP = 'The access token has an exp, nbf or iat that is not a number.'
const NO_ACCESS = 'The token is not an access token.'
const UNCHECKABLE = 'The access token is bound in a way that is not known here.'
const NO_CLIENT = 'The access token does not name a client.'

describe('a token that is not accepted', () => {
  it.each<[string, object, string]>([
    ['that is not active, with any other members', { active: false }, NOT_ACTIVE],
    ['for another audience', { aud: 'https://other.example.com' }, ELSEWHERE],
    ['for an audience that is an object', { aud: {} }, ELSEWHERE],
    ['for no audience and of no kind', { aud: undefined, token_type: undefined }, NO_ACCESS],
    ['for an empty list of audiences, and of no kind', { aud: [], token_type: undefined }, NO_ACCESS],
    ['whose token_use is refresh_token', { token_use: 'refresh_token' }, NO_ACCESS],
    ['whose typ is Refresh', { typ: 'Refresh' }, NO_ACCESS],
    ['that expired', { exp: START / 1000 - 6 }, 'The access token expired.'],
    ['whose exp is a string', { exp: '9999999999' }, NO_EXP],
    ['that is not valid yet', { nbf: START / 1000 + 10 }, 'The access token is not valid yet.'],
    ['that is a refresh token', { token_type: 'refresh_token' }, NO_ACCESS],
    ['whose token_type is a list', { token_type: ['Bearer'] }, NO_ACCESS],
    ['for no audience, and whose token_type is null', { aud: null, token_type: null }, NO_ACCESS],
    ['for DPoP that is bound to nothing', { token_type: 'DPoP' }, UNCHECKABLE],
    [
      'for DPoP that is bound to a certificate',
      { token_type: 'DPoP', cnf: { 'x5t#S256': DIGEST } },
      UNCHECKABLE,
    ],
    ['that is bound in an unknown way', { cnf: { kid: 'a' } }, UNCHECKABLE],
    ['for DPoP that is bound to null', { token_type: 'DPoP', cnf: null }, UNCHECKABLE],
    ['of no client', { client_id: undefined }, NO_CLIENT],
    ['of a client that is a number', { client_id: 1 }, NO_CLIENT],
  ])('a token %s is refused', async (_, members, why) => {
    server.answer = active(members)
    expect(await asker()()).toEqual(refusedAs(why))
    expect(events).toEqual([])
  })

  it.each([`${ISSUER}/`, [ISSUER], 'https://other.example.com'])(
    'a token of the issuer %j is refused',
    async (iss) => {
      server.answer = active({ iss })
      const refusal = await asker()()
      expect(refusal).toEqual(refusedAs('The issuer is not trusted here.'))
      expect(causeOf(refusal)).toBe(`accepted iss: ${ISSUER}; of the token: ${JSON.stringify(iss)}`)
    },
  )

  it.each(['unsupported_token_type', 'invalid_token'])(
    'a token that the endpoint calls %s is refused',
    async (error) => {
      server.answer = status(400, { error })
      expect(await asker()()).toEqual(refusedAs(NOT_ACTIVE))
      expect(events).toEqual([])
    },
  )
})

const status =
  (code: number, body: object = {}, headers: Record<string, string> = {}): Answer =>
  (response) =>
    response.writeHead(code, headers).end(JSON.stringify(body))

describe('an endpoint that does not answer the question', () => {
  it.each<[string, Answer, RegExp]>([
    ['when it fails', status(500), /answered 500$/],
    ['when it is busy', status(429), /answered 429$/],
    ['when it is not there', status(404), /answered 404$/],
    [
      'when it does not take our secret',
      status(401, { error: 'invalid_client' }),
      /answered 401: .*clientSecret/,
    ],
    ['when it forbids us to ask', status(403), /answered 403: .*clientSecret/],
    ['when it does not understand us', status(400, { error: 'invalid_request' }), /answered 400$/],
    ['when it refuses our client', status(400, { error: 'invalid_client' }), /answered 400$/],
    ['when it redirects', status(307, {}, { location: '/elsewhere' }), /redirect, which is not followed/],
    ['when it omits active', {}, /without an introspection response/],
    ['when active is a string', { active: 'true' }, /without an introspection response/],
    ['when active is a number', { active: 1 }, /without an introspection response/],
    ['when it says a list', [{ active: true }], /without an introspection response/],
    ['when it is not JSON', (response) => response.end('<html>'), /without an introspection response/],
    ['when it says active with another status', status(201, { active: true }), /answered 201$/],
    ['when it hangs up', (response) => response.destroy(), /cannot be read/],
    ['when it is silent', () => {}, /did not answer in time/],
    ['when it stops half-way', (response) => response.write('{"active":'), /did not answer in time/],
    [
      'when it does not end',
      (response) => response.write(Buffer.alloc(100_000, ' ')),
      /larger than 65536 bytes/,
    ],
  ])('the endpoint causes a 503 %s', async (_, answer, reason) => {
    server.answer = answer
    const finding = await asker({ timeoutMs: 800 })()
    expect(statusOf(finding)).toBe(503)
    expect(causeOf(finding)).toMatch(reason)
    expect(events).toEqual([])
    expect(server.asked).toHaveLength(1)
  })

  it('a response that is not an answer is not cached', async () => {
    const ask = asker()
    server.answer = status(500)
    expect(statusOf(await ask('a'))).toBe(503)
    server.answer = active()
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
  })

  it('an endpoint that is down does not affect tokens that are known', async () => {
    const ask = asker()
    server.answer = active()
    await ask('a')
    await server.close()
    for (let i = 0; i < 5; i++) expect(statusOf(await ask())).toBe(503)
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
  })

  it('an outage of the endpoint is reported once, not for a single token, and when it is over', async () => {
    const ask = asker()
    server.answer = status(500)
    await ask()
    await ask()
    expect(events).toEqual([])
    for (let i = 0; i < 3; i++) await ask()
    expect(events).toEqual([expect.stringContaining('answered 500')])
    server.answer = active()
    await ask()
    await ask()
    expect(events).toEqual([expect.stringContaining('answered 500'), 'recovered'])
  })

  it.each<[string, (response: ServerResponse) => unknown]>([
    ['an error', (response) => response.writeHead(500).end()],
    ['no answer', () => {}],
    ['a broken answer', (response) => response.destroy()],
    ['an answer of another shape', (response) => response.end('<html>')],
    ['a refusal of a firewall', (response) => response.writeHead(403).end()],
    ['the error that it is not a token', (response) => response.writeHead(400).end()],
  ])('the endpoint stays in use after tokens that cause %s', async (_, bad) => {
    const ask = asker({ timeoutMs: 1000 })
    server.answer = (response, { form }) => {
      if (form['token']!.startsWith('bad')) bad(response)
      else response.end(JSON.stringify(active()))
    }
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => ask(`bad-${i}`)))
    expect(answers.map(statusOf)).toEqual(Array(10).fill(503))
    expect(await ask()).toMatchObject({ client: 'client-1' })
  })
})

describe('the cached answer', () => {
  it('an answer is cached by the whole token', async () => {
    const ask = asker()
    server.answer = (response, { form }) => response.end(JSON.stringify(active({ client_id: form['token'] })))
    const first = await ask('token-a')
    expect(first).toMatchObject({ client: 'token-a' })
    expect(await ask('token-a')).toBe(first)
    expect(await ask('token-b')).toMatchObject({ client: 'token-b' })
    expect(await ask('TOKEN-A')).toMatchObject({ client: 'TOKEN-A' })
    expect(server.asked).toHaveLength(3)
  })

  it('an answer is cached no longer than exp', async () => {
    const ask = asker({ maxAgeMs: 3_600_000 })
    const exp = seconds() + 60
    server.answer = active({ exp })
    await ask('a')
    server.answer = { active: false }
    now = exp * 1000 - 1
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
    now = exp * 1000
    expect(await ask('a')).toEqual(refusedAs(NOT_ACTIVE))
    now -= 1
    expect(await ask('a')).toEqual(refusedAs(NOT_ACTIVE))
  })

  it('an answer is cached no longer than maxAge, even without exp, so that a revoked token ends', async () => {
    const ask = asker({ maxAgeMs: 20_000 })
    server.answer = active({ exp: undefined })
    await ask('a')
    server.answer = active()
    await ask('b')
    server.answer = { active: false }
    now += 19_999
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
    expect(await ask('b')).toMatchObject({ client: 'client-1' })
    now += 1
    expect(await ask('a')).toEqual(refusedAs(NOT_ACTIVE))
    expect(await ask('b')).toEqual(refusedAs(NOT_ACTIVE))
  })

  it('an answer without exp that is not to be cached counts for the call itself', async () => {
    const ask = asker({ maxAgeMs: 0, leewayMs: 0 })
    server.answer = (response) => {
      now += 50
      response.end(JSON.stringify(active({ exp: undefined })))
    }
    for (let i = 0; i < 2; i++) expect(await ask('a')).toMatchObject({ client: 'client-1' })
    expect(server.asked).toHaveLength(2)
  })

  it('the age of an answer counts from its request, not from its response', async () => {
    const ask = asker({ maxAgeMs: 20_000 })
    server.answer = (response) => {
      now += 15_000
      response.end(JSON.stringify(active()))
    }
    await ask('a')
    now += 5000
    await ask('a')
    expect(server.asked).toHaveLength(2)
  })

  it('an answer against a token is cached for a moment', async () => {
    const ask = asker()
    for (let i = 0; i < 3; i++) expect(await ask('a')).toEqual(refusedAs(NOT_ACTIVE))
    expect(server.asked).toHaveLength(1)
    server.answer = active()
    now += 5001
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
  })

  it('answers for accepted tokens are not evicted by forged tokens', async () => {
    const ask = asker()
    server.answer = active()
    await ask('a')
    server.answer = { active: false }
    for (let i = 0; i < 10; i++) await ask()
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
    expect(server.asked).toHaveLength(11)
  })
})

describe('lookups at the same time', () => {
  it('lookups of one token at the same time are one, and of another token another', async () => {
    const ask = asker()
    server.answer = (response, { form }) =>
      void setTimeout(() => response.end(JSON.stringify(active({ client_id: form['token'] }))), 20)
    const answers = await Promise.all([...Array.from({ length: 50 }, () => ask('a')), ask('b')])
    expect(answers.map((answer) => (answer as Identity).client)).toEqual([
      ...Array<string>(50).fill('a'),
      'b',
    ])
    expect(server.asked).toHaveLength(2)
  })

  it('lookups of one token fail together, and are made again afterwards', async () => {
    const ask = asker()
    server.answer = status(500)
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask('a')))
    expect(answers.map(statusOf)).toEqual(Array(10).fill(503))
    expect(server.asked).toHaveLength(1)
    server.answer = active()
    expect(await ask('a')).toMatchObject({ client: 'client-1' })
  })

  it('at most 32 lookups are made at the same time; the others wait in a queue', async () => {
    const ask = asker({ timeoutMs: 20_000 })
    const held: ServerResponse[] = []
    server.answer = (response) => void held.push(response)
    const answers = Promise.all(Array.from({ length: 100 }, () => ask()))
    await until('32 are asked', () => held.length === 32)
    server.answer = active()
    held[0]!.end(JSON.stringify(active()))
    await until('the others were asked one by one', () => server.asked.length === 100)
    expect(server.open()).toBeLessThanOrEqual(32)
    for (const response of held) response.end(JSON.stringify(active()))
    expect((await answers).every((answer) => !isRefused(answer))).toBe(true)
  })

  it('lookups wait at most the timeout of one, and at most 1000 at a time', async () => {
    const ask = asker({ timeoutMs: 300 })
    server.answer = () => {}
    const answers = await Promise.all(Array.from({ length: 1035 }, () => ask()))
    expect(answers.filter((answer) => statusOf(answer) !== 503)).toEqual([])
    // A few more than at a time: those that began last may be sent as the first time out.
    expect(server.asked.length).toBeLessThanOrEqual(100)
    expect(answers.filter((answer) => causeOf(answer).includes('1000 lookups already wait'))).toHaveLength(3)
    server.answer = active()
    await until('there is room again', async () => !isRefused(await ask()))
  })
})
