import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { AUDIENCE, call, type Call, type Got, ISSUER, startLogging, token } from '../helpers/gateway.ts'
import { thumbprintOf, makeKey } from '../helpers/issuer.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const ZIPPED = gzipSync('x'.repeat(5000))
const ROUTES = [
  { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
  { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
  { match: 'GET /v3/rate-limits', respond: 'limits', authenticate: 'bearer' },
  { match: '/busy', upstream: 'data', authenticate: 'bearer', limits: ['busy'] },
  { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]

const settings = () => ({
  data: upstream.url,
  limits: {
    requests: { per: ['client'], limit: 1, window: '1m' },
    busy: { per: ['client'], limit: { claim: 'plan', default: 0 }, window: '1m', refusal: { status: 529 } },
  },
  routes: ROUTES,
  more: {
    par: { issuer: 'https://identity.example.com/oidc' },
    clients: [{ id: 'listed', authentication: 'private_key_jwt' }],
    drainTimeout: '500ms',
  },
})
const upstream = await startUpstream((request, response) => {
  if (request.url === '/oidc/zipped') response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(ZIPPED)
  else if (request.url === '/oidc/parts') {
    response.write('first')
    setImmediate(() => response.end('second'))
  } else response.end('hello')
})
const gateway = await startLogging(settings())

let ids = 0
/** Sends a request. Returns the response and its access-log line. */
async function logged(options: Call): Promise<{ got: Got; line: Record<string, unknown> }> {
  const id = `call-${++ids}`
  const got = await call(gateway.port, { ...options, headers: { ...options.headers, 'X-Request-Id': id } })
  const own = () => gateway.lines().find(({ requestId }) => requestId === id)
  await until('the line', () => own() !== undefined)
  return { got, line: own()! }
}

const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }
const PARAMETERS = 'scope=openid&redirect_uri=https://a.example.com&response_type=code'
const push = (body: string) => logged({ method: 'POST', path: '/oidc/request', headers: FORM, body })

describe('a limit with a status of its own and a value from the token', () => {
  it('logs a refusal like a 429, and a claim without a value once a minute, without what it says', async () => {
    for (let i = 0; i < 2; i++) {
      const { line } = await logged({ path: '/busy', token: await token('acme', { plan: 'unheard-of' }) })
      expect(line).toMatchObject({ level: 'info', status: 529, decision: 'refused', limit: 'busy' })
      expect(line).not.toHaveProperty('code')
    }
    const warnings = gateway.lines().filter(({ msg }) => String(msg).startsWith('claim of a limit'))
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toMatchObject({ level: 'warn', limit: 'busy', claim: 'plan' })
    expect(JSON.stringify(warnings)).not.toContain('unheard-of')
  })
})

describe('the line of a pushed authorisation request', () => {
  it('the line of a pushed authorisation request has the claimed client, if forwarded or refused', async () => {
    const forwarded = await push(`client_id=any%22one&${PARAMETERS}`)
    expect(forwarded.line).toMatchObject({ status: 200, client: 'any"one', claimed: true })
    const secret = await push(`client_id=listed&client_secret=hunter2&${PARAMETERS}`)
    expect(secret.line).toMatchObject({ status: 401, client: 'listed', claimed: true })
    const incomplete = await push('client_id=listed&scope=openid')
    expect(incomplete.line).toMatchObject({ status: 400, client: 'listed', claimed: true })
  })

  it.each([
    ['has several clients', `client_id=a&client_id=b&${PARAMETERS}`],
    ['has too long a client', `client_id=${'x'.repeat(256)}&${PARAMETERS}`],
    ['has a client with a control character', `client_id=a%0Ab&${PARAMETERS}`],
    ['has no client', PARAMETERS],
  ])('the line of a pushed authorisation request has no client if the request %s', async (_, body) => {
    expect((await push(body)).line).not.toHaveProperty('client')
  })
})

describe('the line of a 401', () => {
  it('the line of a 401 has the client of a token with a valid signature', async () => {
    const early = await logged({ token: await token('acme', { nbf: 9_999_999_999 }) })
    expect(early.line).toMatchObject({ status: 401, client: 'acme' })
    const cnf = { jkt: thumbprintOf(makeKey('ES256')) }
    expect((await logged({ token: await token('bound', { cnf }) })).line).toMatchObject({
      ...{ status: 401, client: 'bound' },
    })
    expect((await logged({ token: `${await token('acme')}A` })).line).not.toHaveProperty('client')
  })

  it('the line of a 401 has the issuer or audience of a token for another, and those that are accepted', async () => {
    const aud = ['https://other.example.com', 'é"']
    const foreign = await logged({ token: await token('acme', { iss: 'https://other.example.com/oidc' }) })
    expect(foreign.line).toMatchObject({
      status: 401,
      cause: `accepted iss: ${ISSUER}; of the token: "https://other.example.com/oidc"`,
    })
    const elsewhere = await logged({ token: await token('acme', { aud }) })
    expect(elsewhere.line).toMatchObject({
      ...{ status: 401, client: 'acme' },
      cause: `accepted aud: ${AUDIENCE}; of the token: ${JSON.stringify(aud)}`,
    })
    expect(elsewhere.got.json.detail).toBe('The access token is for another audience.')
    for (const { got } of [foreign, elsewhere])
      expect(JSON.stringify(got.headers) + got.body).not.toContain('other.example.com')
  })
})

describe('the bytes of a line', () => {
  it.each([
    ['a response', { path: '/oidc/x' }, 5],
    ['a response as it was sent, compressed', { path: '/oidc/zipped' }, ZIPPED.length],
    ['a response in chunks, without their framing', { path: '/oidc/parts' }, 11],
    ['a response to HEAD', { path: '/oidc/x', method: 'HEAD' }, 0],
    ['a refusal to HEAD', { path: '/x', method: 'HEAD' }, 0],
  ])('the bytes of a line are those of %s', async (_, options, bytes) => {
    expect((await logged(options)).line).toMatchObject({ bytes })
  })

  it('the bytes of a line are those of the gateway’s own responses', async () => {
    const refused = await logged({ path: '/x' })
    const limits = await logged({ path: '/v3/rate-limits', token: await token('acme') })
    for (const { got, line } of [refused, limits])
      expect(line['bytes']).toBe(Number(got.headers['content-length']))
  })
})

it('the line of a 501 has the level info, since any caller can cause it', async () => {
  const headers = { 'Transfer-Encoding': 'gzip, chunked' }
  const { line } = await logged({ method: 'POST', path: '/v3/x', headers, body: 'x' })
  expect(line).toMatchObject({ status: 501, level: 'info', code: 'NotImplemented', source: 'gateway' })
})

it('a line has the trace id of the request', async () => {
  const headers = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` }
  expect((await logged({ path: '/oidc/x', headers })).line).toMatchObject({ traceId: TRACE })
  expect((await logged({ path: '/oidc/x' })).line).not.toHaveProperty('traceId')
})

it('with log.refusals: sampled, refusals from memory have few lines, which count them all, also at shutdown', async () => {
  const sampled = await startLogging({
    ...settings(),
    more: { ...settings().more, log: { refusals: 'sampled' } },
  })
  for (const client of ['one', 'two']) {
    const mine = await token(client)
    for (let i = 0; i < 40; i++) await call(sampled.port, { path: '/v3/x', token: mine })
  }
  await sampled.close()
  const lines = sampled.lines().filter(({ msg }) => msg === 'request')
  expect(lines.length).toBeLessThan(40)
  for (const client of ['one', 'two']) {
    const own = lines.filter((line) => line['client'] === client)
    const counts: number[] = own.map(({ omitted = 0 }) => 1 + (omitted as number))
    expect(counts.reduce((sum, count) => sum + count)).toBe(40)
  }
  for (const { omitted, ...line } of lines)
    expect(line).toMatchObject(omitted === undefined ? { msg: 'request' } : { decision: 'refused' })
})
