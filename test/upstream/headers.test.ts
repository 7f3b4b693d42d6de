import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { type Received, requestHeaders as fieldsFor } from '../../src/upstream/request-headers.ts'
import { readResponseHead } from '../../src/upstream/response-head.ts'
import { createRequestFields } from '../../src/downstream/request-fields.ts'
import { createResponseFields } from '../../src/upstream/response-head.ts'
import { fieldsObject, fieldsOf } from '../helpers/fields.ts'
import { FROM_PROXY } from '../helpers/proxy-fields.ts'

const requestFields = createRequestFields({
  requestId: 'x-request-id',
  counted: [],
  identity: [],
  callers: [],
})
const responseFields = createResponseFields('X-Request-Id')
const requestHeaders = (sent: Parameters<typeof fieldsFor>[0], received: Received) =>
  fieldsObject(fieldsFor(sent, received, requestFields, 'x-request-id'))

const direct: Received = {
  request: { headers: { host: 'a:8080' }, socket: { localPort: 8080 } as Socket },
  peer: '1.1.1.1',
  ip: '1.1.1.1',
  requestId: 'r',
  trusted: false,
}
const proxied: Received = { ...direct, ip: '9.9.9.9', trusted: true }
const OWN = {
  'x-forwarded-for': '1.1.1.1',
  'x-forwarded-proto': 'http',
  'x-forwarded-host': 'a:8080',
  'x-forwarded-port': '8080',
  'x-real-ip': '1.1.1.1',
  'x-request-id': 'r',
}

const headersOf = (list: string): string[] => list.split(/\s+/)

/** Fields that would rewrite the decision: removed from every caller. */
const OVERRIDES = `
  path-info proxy request-uri script-name x-client-id x-clientid x-envoy-original-path x-http-method
  x-http-method-override x-http-path-override x-method-override x-original-method x-original-path
  x-original-uri x-original-url x-override-url x-path-info x-replaced-path x-request-uri x-rewrite-url
  x-script-name x-sluice-client
`
  .trim()
  .split(/\s+/)
const HOP = `
  expect http2-settings keep-alive proxy-authenticate proxy-authentication-info proxy-authorization
  proxy-connection te trailer transfer-encoding upgrade
`
  .trim()
  .split(/\s+/)
const fields = (names: readonly string[], value = 'evil') =>
  Object.fromEntries(names.map((name) => [name, value]))
const HARMLESS = {
  host: 'a:8080',
  accept: '*/*',
  cookie: 'a=1; b=2',
  origin: 'https://x',
  traceparent: '00-1',
  ...fields(
    `
  x-forwarder x-clients x-custom_name x-concert-id x-client-version client-secret x-request-host x-idn x-zip
  x-ip-country x-remoteness x-user-info-version x-recipient max-forwards strict-transport user-agent
  idempotency-key x-fapi-customer-ip-address x-fapi-auth-date psu-ip-address psu-ip-port tpp-certificate
  tpp-signature-certificate tpp-signing-certificate x-jws-signature
`
      .trim()
      .split(/\s+/),
    '1',
  ),
}
const respelled = (names: readonly string[]) =>
  names.flatMap((name) =>
    name.includes('-') ? [name.replaceAll('-', '_'), name.replaceAll('-', '.'), name.replace('-', '_')] : [],
  )

describe('request fields', () => {
  it('request fields that only proxies may send are removed from others, in every spelling', () => {
    const claimed = { ...HARMLESS, ...fields([...FROM_PROXY, ...Object.keys(OWN), ...respelled(FROM_PROXY)]) }
    expect(requestHeaders(claimed, direct)).toEqual({ ...HARMLESS, ...OWN })
  })

  it('request fields of a trusted proxy are kept, and this hop added; spellings that a proxy would not write are dropped', () => {
    const told = {
      ...HARMLESS,
      ...fields(FROM_PROXY),
      'x-forwarded-for': '9.9.9.9, 8.8.8.8',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'public.example',
      'x-forwarded-port': '443',
      'x-real-ip': '7.7.7.7',
    }
    const wrong = respelled([...FROM_PROXY, 'x-forwarded-for', 'x-real-ip']).filter(
      (name) => !/^(?:ssl|oidc)_/.test(name),
    )
    expect(
      requestHeaders(
        { ...told, ...fields(wrong), ssl_client_cert: 'apache', oidc_claim_sub: 'apache' },
        proxied,
      ),
    ).toEqual({
      ...told,
      'x-forwarded-for': '9.9.9.9, 8.8.8.8, 1.1.1.1',
      'x-real-ip': '9.9.9.9',
      'x-request-id': 'r',
      ssl_client_cert: 'apache',
      oidc_claim_sub: 'apache',
    })
    const behind = { ...OWN, 'x-real-ip': '9.9.9.9' }
    expect(requestHeaders(HARMLESS, proxied)).toEqual({ ...HARMLESS, ...behind })
    expect(requestHeaders({ ...HARMLESS, 'x-forwarded-proto': 'https, http' }, proxied)).toEqual({
      ...HARMLESS,
      ...behind,
      'x-forwarded-proto': 'https, http',
    })
    const named = { 'x-forwarded-proto': 'https, http', 'x-forwarded-host': 'api.example.com, inner:8080' }
    expect(requestHeaders(named, proxied)).toMatchObject({ 'x-forwarded-port': '443' })
  })

  it('request fields that rewrite the decision, or are for one hop, are dropped, also if a trusted proxy sent them', () => {
    const names = [...OVERRIDES, ...HOP]
    for (const forwarded of [direct, proxied]) {
      expect(requestHeaders({ ...HARMLESS, ...fields([...names, ...respelled(names)]) }, forwarded)).toEqual({
        ...HARMLESS,
        ...OWN,
        'x-real-ip': forwarded.ip,
      })
    }
  })

  it('request fields that could pass for one that was judged are dropped', () => {
    const alike = ['content_length', 'content_type', 'content.encoding', 'x_request_id', 'content_length']
    expect(requestHeaders({ ...HARMLESS, ...fields(alike) }, direct)).toEqual({ ...HARMLESS, ...OWN })
  })

  it.each([
    'transfer---encoding',
    'transferencoding',
    'contentlength',
    'content--length',
    'host-',
    '-h.o.s.t',
    'content-length1',
  ])('request fields with the letters of a framing field are dropped: %s', (name) =>
    expect(requestHeaders({ ...HARMLESS, [name]: '1' }, direct)).toEqual({ ...HARMLESS, ...OWN }),
  )

  it('request fields that Connection names are dropped, except what was checked and what a trusted proxy sends', () => {
    const judged = {
      host: 'a',
      authorization: 'Basic x',
      'content-type': 'application/x-www-form-urlencoded',
      'content-encoding': 'identity',
      cookie: 'a=1',
      dpop: 'p',
    }
    const claims = { 'x-forwarded-for': '9.9.9.9', 'client-cert': ':x:' }
    const connection = [...Object.keys({ ...judged, ...claims }), 'X-Hop', '', ' x-other\t'].join(', ')
    const sent = { ...judged, ...claims, 'x-hop': '1', 'x-other': '2', connection }
    expect(requestHeaders(sent, direct)).toEqual({ ...judged, ...OWN })
    expect(requestHeaders(sent, proxied)).toEqual({
      ...judged,
      ...OWN,
      'x-forwarded-for': '9.9.9.9, 1.1.1.1',
      'x-real-ip': '9.9.9.9',
      'client-cert': ':x:',
    })
  })

  it('leave Content-Length to what sends the body', () => {
    expect(requestHeaders({ host: 'a', 'content-length': '3' }, direct)).toEqual({ host: 'a', ...OWN })
  })

  it('request fields with the names of members that every object has are fields like others', () => {
    const odd = { constructor: '1', valueof: '2', hasownproperty: '3', tostring: '4' }
    expect(requestHeaders({ ...HARMLESS, ...odd }, direct)).toEqual({ ...HARMLESS, ...odd, ...OWN })
  })

  it('request fields are judged the same when more names were met than are remembered', () => {
    requestHeaders(fields(Array.from({ length: 1500 }, (_, i) => `x-name-${i}`)), direct)
    expect(
      requestHeaders({ 'x-forwarded-unheard': '1', x_rewrite_url: '2', 'x-kept-1': '3' }, direct),
    ).toEqual({
      'x-kept-1': '3',
      ...OWN,
    })
  })
})

describe('fields of the answer', () => {
  it('keep names, values and order; those of the hop end here, the rate limits of the gateway replace others', () => {
    const raw = headersOf(`X-B 1 Set-Cookie a Keep-Alive timeout=5 set-cookie b X-Hop 2 RateLimit y
      X-RateLimit-Reset z Trailer X Content-Length 3 Date d`)
    const answer = (connection: string, status: number, rateLimit?: string) => {
      const head = readResponseHead([...raw, 'Connection', connection], status, {
        rateLimit,
        requestId: 'r',
        responseFields,
      })
      return { ...head, headers: fieldsOf(head.headers) }
    }
    expect(answer('x-hop, Content-Length', 200, '\r\nX-RateLimit-Limit: 1')).toEqual({
      headers: headersOf('X-B 1 Set-Cookie a set-cookie b X-RateLimit-Limit 1 X-Request-Id r'),
      framing: headersOf('Content-Length 3 Date d'),
      contentLength: 3,
      transferEncoding: undefined,
      keepAliveMs: 4000,
      isConnectionBound: false,
    })
    expect(answer('date', 200).framing).toEqual(headersOf('Content-Length 3'))
    expect(answer('close', 204)).toMatchObject({
      framing: headersOf('Date d'),
      headers: headersOf(
        'X-B 1 Set-Cookie a set-cookie b X-Hop 2 RateLimit y X-RateLimit-Reset z X-Request-Id r',
      ),
    })
  })

  it('keep the first request id that is not empty, else have that of the request', () => {
    const added = { rateLimit: undefined, requestId: 'r', responseFields }
    const answer = (...ids: readonly string[]) => {
      const { headers } = readResponseHead(
        ids.flatMap((id) => ['X-Request-Id', id]),
        200,
        added,
      )
      return fieldsOf(headers)
    }
    expect(answer('', 'a', 'b')).toEqual(headersOf('X-Request-Id a'))
    expect(answer('')).toEqual(headersOf('X-Request-Id r'))
  })
})
