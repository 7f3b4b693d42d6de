import { describe, expect, it } from 'vitest'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { makeKey } from '../helpers/issuer.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { REFUSED } from './aliases.ts'
import { BAD_CREDENTIALS } from './credentials.ts'
import { BAD_PUSHES, type Push } from './forms.ts'
import { FRAMINGS } from './framing/corpus.ts'
import { startStrictUpstream } from './strict-upstream.ts'

const signer = makeKey('ES256', 'signing')
const back = await startStrictUpstream()
const gateway = await startGateway({
  data: back.url,
  routes: [
    { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  ],
  more: {
    par: { issuer: 'https://identity.example.com/oidc', maxBody: '4kB' },
    clients: [{ id: 'signer', requestObjectSigningAlg: 'ES256', jwks: { keys: [signer.jwk] } }],
  },
})

/** Sends a request on a new socket; returns the response. */
async function answered(
  head: readonly string[],
  body = '',
): Promise<{ status: number | undefined; text: string }> {
  const bytes = `${head.join('\r\n')}\r\nHost: a\r\nConnection: close\r\n\r\n${body}`
  const { text } = await raw(gateway.port, Buffer.from(bytes, 'latin1'))
  return { status: statuses(text)[0], text }
}

function push({ type = 'application/x-www-form-urlencoded', authorization, encoding, body }: Push) {
  const fields = [`Content-Type: ${type}`, `Content-Length: ${body.length}`]
  if (authorization !== undefined) fields.push(`Authorization: ${authorization}`)
  if (encoding !== undefined) fields.push(`Content-Encoding: ${encoding}`)
  return answered(['POST /oidc/request HTTP/1.1', ...fields], body)
}

describe('bad inputs', () => {
  it('bad inputs are more than 500, and all differ', () => {
    const framings = FRAMINGS.filter(({ answers }) => answers.some((status) => status >= 400)).map(
      ({ bytes }) => bytes.join(''),
    )
    const targets = REFUSED.map((alias) =>
      typeof alias === 'string' ? alias : `${alias.line}, ${alias.fields.join()}`,
    )
    const credentials = Object.values(BAD_CREDENTIALS).map((make) =>
      make('eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QifQ.eyJpc3MiOiJ4In0.c2ln'),
    )
    const pushes = Object.values(BAD_PUSHES).map((one) => JSON.stringify(one))
    for (const corpus of [framings, targets, credentials, pushes])
      expect(new Set(corpus).size).toBe(corpus.length)
    expect(framings.length).toBeGreaterThan(200)
    expect(targets.length).toBeGreaterThan(200)
    expect(framings.length + targets.length + credentials.length + pushes.length).toBeGreaterThan(500)
  })

  it.each(Object.entries(BAD_CREDENTIALS))('credentials: %s', async (_, make) => {
    const good = await token('acme')
    const { status, text } = await answered(['GET /v3/x HTTP/1.1', `Authorization: ${make(good)}`])
    expect([400, 401]).toContain(status)
    expect(text).toMatch(/\r\nWWW-Authenticate: Bearer realm="identity.example.com"/)
    expect(text).not.toContain(good.slice(0, 40))
  })

  it.each(Object.entries(BAD_PUSHES))('pushes: %s', async (_, one) => {
    const { status, text } = await push(one)
    expect([400, 401, 413]).toContain(status)
    expect(text).toMatch(
      /\{"error":"invalid_(?:request|client|request_object)","error_description":"[ -~]+"\}$/,
    )
  })

  it('reached no upstream, and the gateway still serves', async () => {
    expect(back.requests).toEqual([])
    expect((await call(gateway.port, { path: '/v3/x', token: await token('acme') })).status).toBe(200)
    const good = 'client_id=c&scope=openid&redirect_uri=https%3A%2F%2Fc.example%2F&response_type=code'
    expect((await push({ body: good })).status).toBe(200)
    expect(back.flaws).toEqual([])
  })
})
