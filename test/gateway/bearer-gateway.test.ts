import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { IncomingMessage } from 'node:http'
import { request as httpsRequest, type RequestOptions } from 'node:https'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { AUDIENCE, call, type Settings } from '../helpers/gateway.ts'
import { startGateway, startLogging, token, TOKENS } from '../helpers/gateway.ts'
import { makeKey, signProof, startIssuer, thumbprintOf } from '../helpers/issuer.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOST = 'api.example.com'
const ROUTES = [
  { match: `${HOST}/*`, upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]

const [data, other, introspection] = await Promise.all([
  startUpstream(),
  startIssuer({ algorithms: ['ES256'], audience: AUDIENCE }),
  startIntrospection(),
])
const started = (settings: Partial<Settings> = {}) =>
  startGateway({ data: data.url, routes: ROUTES, ...settings })
const gateway = await started({
  tokens: [
    TOKENS,
    {
      issuer: other.issuer,
      audience: AUDIENCE,
      clientClaim: 'azp',
      introspection: { url: introspection.url, clientId: 'sluice', clientSecret: 's3cret' },
    },
  ],
})

const send = (authorization: string, more: Parameters<typeof call>[1] = {}) =>
  call(gateway.port, { ...more, headers: { Host: HOST, Authorization: authorization, ...more.headers } })

describe('an opaque token', () => {
  it('an opaque token is introspected once, and counted for its client', async () => {
    introspection.answer = { active: true, azp: 'opaque-client', sub: 'u', aud: AUDIENCE }
    const before = introspection.asked.length
    expect((await send('Bearer opaque-1')).headers['x-ratelimit-remaining']).toBe('999')
    expect((await send('Bearer opaque-1')).headers['x-ratelimit-remaining']).toBe('998')
    expect(introspection.asked.slice(before)).toMatchObject([
      {
        authorization: `Basic ${Buffer.from('sluice:s3cret').toString('base64')}`,
        form: { token: 'opaque-1' },
      },
    ])
  })
})

describe('a token that is bound to a key', () => {
  const key = makeKey('ES256')
  const bound = () => token('acme', { cnf: { jkt: thumbprintOf(key) } })
  const prove = (token: string, url: string) => ({ DPoP: signProof({ key, token, url }) })
  const url = `http://${HOST}/transactions`

  it('a token that is bound to a key is accepted with a fresh proof, and refused when the proof is replayed', async () => {
    const mine = await bound()
    const headers = prove(mine, url)
    expect((await send(`DPoP ${mine}`, { headers })).status).toBe(200)
    const replayed = await send(`DPoP ${mine}`, { headers })
    expect(replayed.status).toBe(401)
    expect(replayed.headers['www-authenticate']).toMatch(
      /^DPoP .*error="invalid_dpop_proof", error_description="The DPoP proof was used before\."/,
    )
    expect((await send(`DPoP ${mine}`, { headers: prove(mine, `${url}?a=b`) })).status).toBe(200)
  })

  it('a token that is bound to a key is proved for the URL that a trusted proxy, but not another peer, reports', async () => {
    const proxied = await started({ trustedProxies: ['127.0.0.0/8'] })
    const mine = await bound()
    const headers = () => ({
      Host: 'internal',
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-Host': HOST,
      Authorization: `DPoP ${mine}`,
      ...prove(mine, `https://${HOST}/transactions`),
    })
    expect((await call(proxied.port, { headers: headers() })).status).toBe(200)
    expect((await call(gateway.port, { headers: headers() })).status).toBe(401)
  })

  it('a token that is bound to a key is refused without configured hosts, and the challenge does not offer DPoP', async () => {
    const hostless = await started({
      routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] }],
    })
    const mine = await bound()
    expect((await call(hostless.port)).headers['www-authenticate']).toBe(
      'Bearer realm="identity.example.com"',
    )
    expect((await call(hostless.port, { token: mine })).status).toBe(401)
  })
})

describe('over HTTPS', () => {
  const folder = createFolder()
  const own = makeCertificate('localhost')
  const client = makeCertificate('client')
  const stranger = makeCertificate('stranger')
  for (const [name, content] of Object.entries({ cert: own.cert, key: own.key, ca: client.cert })) {
    writeFileSync(join(folder, `${name}.pem`), content)
  }
  const tls = (more: object = {}) => ({
    tls: { cert: `${folder}/cert.pem`, key: `${folder}/key.pem`, ...more },
  })

  async function get(port: number, authorization: string, options: RequestOptions = {}) {
    const request = httpsRequest({
      host: '127.0.0.1',
      port,
      path: '/transactions',
      ca: own.cert,
      checkServerIdentity: () => undefined,
      agent: false,
      ...options,
      headers: { Host: HOST, Authorization: authorization, ...options.headers },
    })
    request.end()
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    return { status: response.statusCode!, headers: response.headers, body: await text(response) }
  }
  const bound = () => token('acme', { cnf: { 'x5t#S256': client.thumbprint } })

  it('serves callers as over HTTP, and reports https to upstreams', async () => {
    const { port, running } = await started({ listen: tls() })
    expect(running.address).toBe(`https://127.0.0.1:${port}`)
    expect((await get(port, `Bearer ${await token('acme')}`)).status).toBe(200)
    expect(data.seen.at(-1)!.headers).toMatchObject({
      'x-forwarded-proto': 'https',
      'x-forwarded-port': '443',
    })
    const key = makeKey('ES256')
    const mine = await token('acme', { cnf: { jkt: thumbprintOf(key) } })
    const proof = signProof({ key, token: mine, url: `https://${HOST}/transactions` })
    expect((await get(port, `DPoP ${mine}`, { headers: { DPoP: proof } })).status).toBe(200)
  })

  it('adds Strict-Transport-Security over TLS, unless the upstream sends one', async () => {
    const { port } = await started({ listen: tls() })
    const year = 'max-age=31536000'
    expect((await get(port, `Bearer ${await token('acme')}`)).headers['strict-transport-security']).toBe(year)
    expect((await get(port, 'Bearer x')).headers['strict-transport-security']).toBe(year)
    expect((await call(gateway.port, {})).headers).not.toHaveProperty('strict-transport-security')
  })

  it('accepts a token that is bound to a certificate only with this certificate', async () => {
    const { port } = await started({ listen: tls({ requestClientCert: true }) })
    const mine = `Bearer ${await bound()}`
    expect((await get(port, mine, client)).status).toBe(200)
    // The certificate is not signed by an authority, so it is not forwarded.
    expect(data.seen.at(-1)!.headers['client-cert']).toBeUndefined()
    const without = await get(port, mine)
    expect(without.status).toBe(401)
    expect(without.headers['www-authenticate']).toContain('error="invalid_token"')
    expect((await get(port, mine, stranger)).status).toBe(401)
    const header = { 'Client-Cert': `:${client.der.toString('base64')}:` }
    expect((await get(port, mine, { headers: header })).status).toBe(401)
    expect((await get(port, `Bearer ${await token('acme')}`)).status).toBe(200)
  })

  it('a listener with clientCa refuses connections without a signed certificate, and forwards the certificate', async () => {
    const { port } = await started({ listen: tls({ clientCa: `${folder}/ca.pem` }) })
    const mine = `Bearer ${await bound()}`
    const forged = { 'Client-Cert': ':AAAA:' }
    expect((await get(port, mine, { ...client, headers: forged })).status).toBe(200)
    expect(data.seen.at(-1)!.headers['client-cert']).toBe(`:${client.der.toString('base64')}:`)
    for (const options of [stranger, {}]) {
      const outcome: unknown = await get(port, mine, options).catch(
        (error: NodeJS.ErrnoException) => error.code,
      )
      expect(outcome).toMatch(/^(?:ERR_SSL_|ECONNRESET|EPIPE)/)
    }
  })
})

describe('a certificate that a trusted proxy forwards', () => {
  it('a certificate that a trusted proxy forwards is the certificate of the caller', async () => {
    const proxied = await started({ trustedProxies: ['127.0.0.0/8'] })
    const client = makeCertificate('client')
    const mine = await token('acme', { cnf: { 'x5t#S256': client.thumbprint } })
    const headers = { Host: HOST, 'Client-Cert': `:${client.der.toString('base64')}:` }
    expect((await call(proxied.port, { token: mine, headers })).status).toBe(200)
    expect(data.seen.at(-1)!.headers['client-cert']).toBe(headers['Client-Cert'])
    expect((await call(proxied.port, { token: mine, headers: { Host: HOST } })).status).toBe(401)
    expect((await call(gateway.port, { token: mine, headers })).status).toBe(401)
  })
})

it('believes the field of certificates that the file names, and no other', async () => {
  const proxied = await startLogging({
    data: data.url,
    routes: ROUTES,
    trustedProxies: ['127.0.0.0/8'],
    listen: { clientCertificate: 'X-Forwarded-Client-Cert' },
  })
  const client = makeCertificate('client')
  const mine = await token('acme', { cnf: { 'x5t#S256': client.thumbprint } })
  const statusOf = async (port: number, headers: Record<string, string>) =>
    (await call(port, { token: mine, headers: { Host: HOST, ...headers } })).status
  const field = { 'X-Forwarded-Client-Cert': `Hash=ab;Cert="${encodeURIComponent(client.cert)}"` }
  expect(await statusOf(proxied.port, field)).toBe(200)
  expect(await statusOf(proxied.port, { 'Client-Cert': `:${client.der.toString('base64')}:` })).toBe(401)
  expect(await statusOf(gateway.port, field)).toBe(401)
  const twice = { 'X-Forwarded-Client-Cert': `${field['X-Forwarded-Client-Cert']};Cert="x"` }
  for (let i = 0; i < 3; i++) expect(await statusOf(proxied.port, twice)).toBe(401)
  const warnings = () => proxied.lines().filter(({ msg }) => String(msg).startsWith('client certificate'))
  await until('the warning', () => warnings().length > 0)
  expect(warnings()).toMatchObject([
    {
      level: 'warn',
      msg: 'client certificate ignored: its sender reports several',
      peer: '127.0.0.1',
    },
  ])
})
