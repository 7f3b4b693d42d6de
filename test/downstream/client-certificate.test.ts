import { once } from 'node:events'
import { createServer as createHttpServer, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer, request as httpsRequest } from 'node:https'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Identity } from '../../src/authenticate/token/bearer.ts'
import {
  certificateThumbprint,
  clientCertificate,
  readCertificateHeader,
} from '../../src/downstream/client-certificate.ts'
import { createProofs } from '../../src/authenticate/proof/dpop.ts'
import type { KeySource } from '../../src/authenticate/token/jwks.ts'
import { type Sender, senderOf } from '../../src/authenticate/proof/sender.ts'
import { Refusal } from '../../src/errors.ts'
import { makeKey, signProof, startIssuer, type TestIssuer, thumbprintOf } from '../helpers/issuer.ts'
import { makeCertificate, type TestCertificate } from '../helpers/self-signed.ts'
import { createServing, keysOf, trust } from '../helpers/trust.ts'

const ours = makeCertificate('gateway')
const client = makeCertificate('client')
const other = makeCertificate('other')
let issuer: TestIssuer
let keys: KeySource
let authenticate: ReturnType<typeof createServing>

beforeAll(async () => {
  issuer = await startIssuer({ algorithms: ['ES256'] })
  keys = await keysOf(issuer)
  authenticate = createServing(trust(issuer, keys), {
    proofs: createProofs({ serves: (host) => host === 'api.example.com' }),
  })
})
afterAll(async () => {
  keys.close()
  await issuer.close()
})

const bound = (cnf: object = { 'x5t#S256': client.thumbprint }) => issuer.token({ cnf })
const holding =
  (certificate: Buffer | undefined, proofs: readonly string[] = []): (() => Sender) =>
  () => ({
    method: 'GET',
    scheme: 'https',
    host: 'api.example.com',
    path: '/',
    proofs,
    certificate: () => certificate,
  })

function challengeOf(refusal: Identity | Refusal): unknown {
  expect(refusal).toBeInstanceOf(Refusal)
  expect((refusal as Refusal).status).toBe(401)
  return (refusal as Refusal).headers['WWW-Authenticate']
}

describe('a token that is bound to a certificate', () => {
  it('is taken with that certificate, at once', () => {
    expect(authenticate([`Bearer ${bound()}`], holding(client.der))).toMatchObject({
      client: 'client-1',
      confirmation: { x5t: client.thumbprint },
    })
  })

  it('is judged for each request, known or not', async () => {
    const token = bound()
    const send = (certificate?: Buffer) => authenticate([`Bearer ${token}`], holding(certificate))
    expect(await send(client.der)).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await send())).toBe(
      'Bearer realm="test", error="invalid_token", error_description="The access token is bound to a TLS client certificate, and none came with it."',
    )
    expect(challengeOf(await send(other.der))).toBe(
      'Bearer realm="test", error="invalid_token", error_description="The access token is bound to another TLS client certificate."',
    )
    expect(await send(client.der)).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await authenticate([`Bearer ${token}`]))).toMatch(/cannot be checked here/)
  })

  it('is not taken for one that is bound to a key', async () => {
    expect(challengeOf(await authenticate([`DPoP ${bound()}`], holding(client.der)))).toMatch(
      /^DPoP .*error="invalid_token"/,
    )
  })

  it('needs the proof, too, where it is bound to both', async () => {
    const key = makeKey('ES256')
    const token = bound({ 'x5t#S256': client.thumbprint, jkt: thumbprintOf(key) })
    const proof = () => signProof({ key, token, url: 'https://api.example.com/' })
    const send = (scheme: string, ...held: Parameters<typeof holding>) =>
      authenticate([`${scheme} ${token}`], holding(...held))
    expect(await send('DPoP', client.der, [proof()])).toMatchObject({ client: 'client-1' })
    expect(challengeOf(await send('DPoP', client.der))).toMatch(/invalid_dpop_proof/)
    expect(challengeOf(await send('DPoP', undefined, [proof()]))).toMatch(/certificate/)
    expect(challengeOf(await send('DPoP', other.der, [proof()]))).toMatch(/certificate/)
    expect(challengeOf(await send('Bearer', client.der, [proof()]))).toEqual([
      expect.stringContaining('Bearer'),
      expect.stringContaining('DPoP'),
    ])
  })
})

describe('a token that is bound in a way that is not known', () => {
  it.each([
    { kid: 'a' },
    { jwk: {} },
    { x5t: client.thumbprint },
    { 'x5t#S256': client.thumbprint, kid: 'a' },
    { 'x5t#S256': 'short' },
    { 'x5t#S256': [client.thumbprint] },
    { 'x5t#S256': null },
    { 'x5t#S256': `${client.thumbprint}=` },
    { jkt: null, 'x5t#S256': client.thumbprint },
    {},
    [],
    [client.thumbprint],
  ])('is refused: %j', async (cnf) => {
    expect(challengeOf(await authenticate([`Bearer ${bound(cnf)}`], holding(client.der)))).toBe(
      'Bearer realm="test", error="invalid_token", error_description="The access token is bound to its client in a way that cannot be checked here."',
    )
  })
})

describe('the certificate of a request', () => {
  /** What `senderOf` finds in one request, over TLS with or without a certificate, or without TLS. */
  async function seen(
    {
      certificate,
      headers = {},
      plain = false,
    }: {
      readonly certificate?: TestCertificate
      readonly headers?: Readonly<Record<string, string | string[]>>
      readonly plain?: boolean
    },
    trusted: boolean,
  ): Promise<Sender & { readonly der: Buffer | undefined }> {
    let sender: (Sender & { readonly der: Buffer | undefined }) | undefined
    const answer: RequestListener = (request, response) => {
      const found = senderOf(request, {
        path: '/v3/transactions',
        proofs: [],
        trusted,
        certificate: () => clientCertificate(request, trusted),
      })
      sender = { ...found, der: found.certificate() }
      response.end()
    }
    const server = plain
      ? createHttpServer(answer)
      : createServer({ key: ours.key, cert: ours.cert, requestCert: true, rejectUnauthorized: false }, answer)
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    const { request } = plain ? await import('node:http') : { request: httpsRequest }
    const sent = request({
      host: '127.0.0.1',
      port,
      method: 'POST',
      path: '/v3/transactions?a=b',
      agent: false,
      headers: { host: 'api.example.com', ...headers },
      ...(!plain && { ca: ours.cert, checkServerIdentity: () => undefined }),
      ...(certificate && { key: certificate.key, cert: certificate.cert }),
    })
    const [response] = (await once(sent.end(), 'response')) as [IncomingMessage]
    response.resume()
    await once(response, 'end')
    await new Promise((resolve) => server.close(resolve))
    return sender!
  }
  const header = `:${client.der.toString('base64')}:`

  it('is that of the TLS handshake', async () => {
    expect((await seen({ certificate: client }, false)).der).toEqual(client.der)
    expect((await seen({}, false)).der).toBeUndefined()
    expect((await seen({ plain: true }, false)).der).toBeUndefined()
  })

  it('is that of the first handshake where a TLS session is resumed', async () => {
    const found: (Buffer | undefined)[] = []
    const server = createServer(
      { key: ours.key, cert: ours.cert, requestCert: true, rejectUnauthorized: false },
      (request, response) => {
        found.push(clientCertificate(request, false))
        response.end()
      },
    )
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    let session: Buffer | undefined
    for (const resumed of [false, true]) {
      const socket = connect({
        port,
        host: '127.0.0.1',
        ca: ours.cert,
        checkServerIdentity: () => undefined,
        ...(session === undefined ? { key: client.key, cert: client.cert } : { session }),
      })
      socket.on('session', (one: Buffer) => (session = one))
      await once(socket, 'secureConnect')
      expect(socket.isSessionReused()).toBe(resumed)
      socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
      socket.resume()
      await once(socket, 'close')
    }
    await new Promise((resolve) => server.close(resolve))
    expect(found).toEqual([client.der, client.der])
  })

  it('is never what an untrusted peer says it is', async () => {
    const headers = { 'Client-Cert': header }
    expect((await seen({ headers }, false)).der).toBeUndefined()
    expect((await seen({ headers, plain: true }, false)).der).toBeUndefined()
    expect((await seen({ headers, certificate: other }, false)).der).toEqual(other.der)
  })

  it('is what a trusted proxy says it is, and not the proxy’s own', async () => {
    const headers = { 'Client-Cert': header }
    expect((await seen({ headers, plain: true }, true)).der).toEqual(client.der)
    expect((await seen({ headers, certificate: other }, true)).der).toEqual(client.der)
    expect((await seen({ certificate: other }, true)).der).toBeUndefined()
    const encoded = encodeURIComponent(client.cert)
    expect((await seen({ headers: { 'X-SSL-Cert': encoded } }, true)).der).toBeUndefined()
    expect((await seen({ headers: { 'Client-Cert': encoded } }, true)).der).toEqual(client.der)
  })

  it('is unknown where there are two', async () => {
    const headers = { 'Client-Cert': [header, header] }
    expect((await seen({ headers, plain: true }, true)).der).toBeUndefined()
  })

  it('comes with method and URL', async () => {
    const headers = {
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-Host': 'public.example.com',
    }
    expect(await seen({ headers, plain: true }, false)).toMatchObject({
      method: 'POST',
      scheme: 'http',
      host: 'api.example.com',
      path: '/v3/transactions',
    })
    expect((await seen({ headers }, false)).scheme).toBe('https')
    expect(await seen({ headers, plain: true }, true)).toMatchObject({
      scheme: 'https',
      host: 'public.example.com',
      path: '/v3/transactions',
    })
    expect(await seen({ plain: true }, true)).toMatchObject({ scheme: 'http', host: 'api.example.com' })
  })
})

/** RFC 8705 appendix A. */
const RFC_CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBBjCBrAIBAjAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARtdGxzMB4XDTE4MTAx
ODEyMzcwOVoXDTIyMDUwMjEyMzcwOVowDzENMAsGA1UEAwwEbXRsczBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABNcnyxwqV6hY8QnhxxzFQ03C7HKW9OylMbnQZjjJ
/Au08/coZwxS7LfA4vOLS9WuneIXhbGGWvsDSb0tH6IxLm8wCgYIKoZIzj0EAwID
SQAwRgIhAP0RC1E+vwJD/D1AGHGzuri+hlV/PpQEKTWUVeORWz83AiEA5x2eXZOV
bUlJSGQgjwD5vaUaKlLR50Q2DmFfQj1L+SY=
-----END CERTIFICATE-----
`
const RFC_BASE64 = RFC_CERTIFICATE.replace(/-----[^-]+-----|\s/g, '')

describe('the certificate of RFC 8705 appendix A', () => {
  it.each([
    ['a byte sequence', `:${RFC_BASE64}:`],
    ['a byte sequence in white space', ` :${RFC_BASE64}: `],
    ['bare base64', RFC_BASE64],
    ['URL-encoded PEM', encodeURIComponent(RFC_CERTIFICATE)],
    ['URL-encoded PEM with safe characters', encodeURI(RFC_CERTIFICATE)],
    ['PEM with spaces for line breaks', RFC_CERTIFICATE.replaceAll('\n', ' ')],
    ['a chain', encodeURIComponent(RFC_CERTIFICATE + other.cert)],
  ])('has its thumbprint as %s', (_, value) => {
    expect(certificateThumbprint(readCertificateHeader(value)!)).toBe(
      'A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0',
    )
  })

  it.each([
    undefined,
    '',
    ':',
    '::',
    `:${RFC_BASE64}`,
    `${RFC_BASE64}:`,
    `:${RFC_BASE64}:, :${RFC_BASE64}:`,
    `:${RFC_BASE64}:;a=b`,
    '(null)',
    '-----BEGIN CERTIFICATE-----',
    '-----BEGIN%20CERTIFICATE-----%',
    encodeURIComponent(RFC_CERTIFICATE.replaceAll('CERTIFICATE', 'PUBLIC KEY')),
  ])('is not read out of %j', (value) => {
    expect(readCertificateHeader(value)).toBeUndefined()
  })
})
