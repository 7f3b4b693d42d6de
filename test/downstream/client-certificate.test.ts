import { hash } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer as createHttpServer,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
} from 'node:http'
import { createServer, request as httpsRequest } from 'node:https'
import { connect } from 'node:tls'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Sender, originOf } from '../../src/authenticate/proof/dpop.ts'
import { clientCertificate, readCertificateHeader } from '../../src/downstream/client-certificate.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { makeCertificate, type TestCertificate } from '../helpers/self-signed.ts'

const ours = makeCertificate('gateway')
const client = makeCertificate('client')
const other = makeCertificate('other')

interface Seen extends Sender {
  readonly der: Buffer | undefined
}

describe('the certificate of a request', () => {
  const tls = { key: ours.key, cert: ours.cert, requestCert: true, rejectUnauthorized: false }
  const found: Seen[] = []
  let trusted = false
  let field = 'client-cert'
  let several = 0
  const look: RequestListener = (request, response) => {
    const certificate = () => clientCertificate(request, trusted, field, () => several++)
    const parsed = { method: request.method!, path: '/v3/transactions', proofs: [], certificate }
    found.push({ ...parsed, ...originOf(request, trusted), der: certificate() })
    response.end()
  }
  let ports: Record<'http' | 'https', number>
  beforeAll(async () => {
    const http = await listenLocally(createHttpServer(look))
    ports = { http: http.port, https: (await listenLocally(createServer(tls, look))).port }
  })
  beforeEach(() => void found.splice(0))

  /** Returns the certificate of one request, over TLS with or without a certificate, or without TLS. */
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
    byTrusted: boolean,
  ): Promise<Seen> {
    trusted = byTrusted
    const sent = (plain ? httpRequest : httpsRequest)({
      host: '127.0.0.1',
      port: plain ? ports.http : ports.https,
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
    return found.at(-1)!
  }
  const header = `:${client.der.toString('base64')}:`

  it('the certificate of a request is that of the TLS handshake', async () => {
    expect((await seen({ certificate: client }, false)).der).toEqual(client.der)
    expect((await seen({}, false)).der).toBeUndefined()
    expect((await seen({ plain: true }, false)).der).toBeUndefined()
  })

  it('the certificate of a resumed TLS session is that of its first handshake', async () => {
    trusted = false
    let session: Buffer | undefined
    for (const resumed of [false, true]) {
      const socket = connect({
        port: ports.https,
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
    expect(found.map(({ der }) => der)).toEqual([client.der, client.der])
  })

  it('the certificate field of an untrusted peer is ignored', async () => {
    const headers = { 'Client-Cert': header }
    expect((await seen({ headers }, false)).der).toBeUndefined()
    expect((await seen({ headers, plain: true }, false)).der).toBeUndefined()
    expect((await seen({ headers, certificate: other }, false)).der).toEqual(other.der)
  })

  it('the certificate is the one that a trusted proxy reports, not the proxy’s own', async () => {
    const headers = { 'Client-Cert': header }
    expect((await seen({ headers, plain: true }, true)).der).toEqual(client.der)
    expect((await seen({ headers, certificate: other }, true)).der).toEqual(client.der)
    expect((await seen({ certificate: other }, true)).der).toBeUndefined()
    const encoded = encodeURIComponent(client.cert)
    expect((await seen({ headers: { 'X-SSL-Cert': encoded } }, true)).der).toBeUndefined()
    expect((await seen({ headers: { 'Client-Cert': encoded } }, true)).der).toEqual(client.der)
  })

  it('the certificate is unknown if two are reported', async () => {
    const headers = { 'Client-Cert': [header, header] }
    several = 0
    expect((await seen({ headers, plain: true }, true)).der).toBeUndefined()
    expect(several).toBe(1)
  })

  it('the certificate is in the field that the file names, and in no other', async () => {
    const headers = { 'X-Forwarded-Tls-Client-Cert': client.der.toString('base64') }
    expect((await seen({ headers, plain: true }, true)).der).toBeUndefined()
    field = 'x-forwarded-tls-client-cert'
    expect((await seen({ headers, plain: true }, true)).der).toEqual(client.der)
    expect((await seen({ headers: { 'Client-Cert': header }, plain: true }, true)).der).toBeUndefined()
    const twice = { 'X-Forwarded-Tls-Client-Cert': [other, client].map(({ der }) => der.toString('base64')) }
    expect((await seen({ headers: twice, plain: true }, true)).der).toBeUndefined()
    expect((await seen({ headers, plain: true }, false)).der).toBeUndefined()
    field = 'client-cert'
  })

  it('the certificate of a request comes with its method and URL', async () => {
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
    ['the first of a list of base64', `${RFC_BASE64},${other.der.toString('base64')}`],
    [
      'the first of a list of escaped PEM',
      `${encodeURIComponent(RFC_CERTIFICATE)},${encodeURIComponent(other.cert)}`,
    ],
    [
      'Cert of Envoy',
      `Hash=ab;Cert="${encodeURIComponent(RFC_CERTIFICATE)}";Subject="CN=\\"a\\",O=b";URI=spiffe://x`,
    ],
    ['Cert of Envoy without quotes', `By=spiffe://x;Cert=${encodeURIComponent(RFC_CERTIFICATE)};Hash=ab`],
    ['Cert of Envoy in another order', `Cert="${encodeURIComponent(RFC_CERTIFICATE)}";Hash=ab`],
  ])('the certificate has its thumbprint as %s', (_, value) => {
    expect(hash('sha256', readCertificateHeader(value) as Buffer, 'base64url')).toBe(
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
    `Subject=";Cert=${encodeURIComponent(RFC_CERTIFICATE)}"`,
    'Hash=ab',
    'Cert="',
    `Hash=ab;Cert="${'"'.repeat(1000)}`,
    '-----BEGIN CERTIFICATE-----',
    '-----BEGIN%20CERTIFICATE-----%',
    encodeURIComponent(RFC_CERTIFICATE.replaceAll('CERTIFICATE', 'PUBLIC KEY')),
  ])('no certificate is parsed from %j', (value) => {
    expect(readCertificateHeader(value)).toBeUndefined()
  })

  const [own, others] = [RFC_CERTIFICATE, other.cert].map(encodeURIComponent)
  it.each([
    `Hash=ab;Cert="${own}",Hash=cd;Cert="${others}"`,
    `Hash=ab,Cert=${own}`,
    `Cert="${own}";Cert="${others}"`,
    `Cert=${own};Hash=ab;Cert=${others}`,
    `Cert=${own};cert="${others}"`,
    `Hash=ab; CERT ="${own}"; Cert=${own}`,
    `Cert="";Cert="${own}"`,
    `Cert=;Cert=${own}`,
  ])('several could be meant by %j', (value) => {
    expect(readCertificateHeader(value)).toBe('several')
  })
})
