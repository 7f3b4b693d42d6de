import { beforeEach, describe, expect, it } from 'vitest'
import { call, type Call, startGateway } from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8'
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }
const PUSHED = '/oidc/auth?client_id=signing&request_uri=urn:ietf:params:oauth:request_uri:a-1'

const identity = await startUpstream((_, response) => response.writeHead(303, { Location: '/x' }).end())
const gateway = await startGateway({
  data: identity.url,
  // An earlier open route must not bypass the guard.
  routes: [
    { match: 'GET /oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: 'GET,POST /oidc/auth', upstream: 'identity', authenticate: 'authorization' },
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
  ],
  more: {
    par: { issuer: 'https://id.example.com/oidc', maxBody: '1kB' },
    clients: [
      { id: 'signing', requestObjectSigningAlg: 'PS256' },
      { id: '<b>"&\'', pushed: 'required' },
    ],
  },
})
beforeEach(() => void identity.seen.splice(0))

const ask = (path: string, more: Call = {}) => call(gateway.port, { path, ...more })

describe('the authorisation endpoint', () => {
  it.each([
    PUSHED,
    '/OIDC/Auth/?client_id=signing&request_uri=urn:ietf:params:oauth:request_uri:a&x=%2f+%zz'.replace(
      '%zz',
      '%7A',
    ),
    '/oidc/auth?client_id=other&scope=openid&x=%2F%2f+a&x=b',
  ])('forwards %s unchanged', async (path) => {
    expect((await ask(path)).status).toBe(303)
    expect((await ask(path, { method: 'HEAD' })).status).toBe(303)
    expect(identity.seen.map(({ url }) => url.slice(url.indexOf('?')))).toEqual(
      [0, 0].map(() => path.slice(path.indexOf('?'))),
    )
  })

  it('forwards a form byte for byte', async () => {
    const body = 'scope=openid&client_id=signing&request_uri=urn%3Aietf:params:oauth:request_uri:a%2d1&&x='
    expect((await ask('/oidc/auth', { method: 'POST', headers: FORM, body })).status).toBe(303)
    expect(identity.seen.map((seen) => seen.body.toString())).toEqual([body])
  })

  it.each([
    ['plain parameters in the query', { path: '/oidc/auth?client_id=signing&scope=openid' }],
    ['them in a form', { path: '/oidc/auth', method: 'POST', headers: FORM, body: 'client_id=signing' }],
    ['them to a HEAD', { path: '/oidc/auth?client_id=signing', method: 'HEAD' }],
    ['an alias of the path', { path: '/oidc/%61uth/?client_id=signing' }],
  ] as const)('refuses %s, and forwards nothing', async (_, { path, ...more }) => {
    expect((await ask(path, more)).status).toBe(400)
    expect(identity.seen).toEqual([])
  })

  it.each([
    ['/oidc/auth.json?client_id=signing', 'GET', 404],
    ['/oidc/auth%20?client_id=signing', 'GET', 404],
    ['/oidc/auth?client_id=signing', 'PUT', 405],
    ['/oidc/auth?client_id=signing', 'OPTIONS', 405],
  ])('the authorisation endpoint cannot be reached by an alias: %s by %s', async (path, method, status) => {
    const { headers, ...got } = await ask(path, { method })
    expect(got.status).toBe(status)
    expect(headers.allow).toBe(status === 405 ? 'GET, HEAD, POST' : undefined)
    expect(identity.seen).toEqual([])
  })

  it('refuses a form over par.maxBody', async () => {
    const sent = { method: 'POST', headers: FORM, body: `client_id=${'x'.repeat(1100)}` }
    expect((await ask('/oidc/auth', sent)).status).toBe(413)
  })

  it('forwards the resumption of a login', async () => {
    expect((await ask('/oidc/auth/an-interaction')).status).toBe(303)
  })
})

describe('a refusal of the authorisation endpoint', () => {
  const path = `/oidc/auth?client_id=${encodeURIComponent(`<b>"&'`)}&state=%3Cscript%3E`

  it('a refusal of the authorisation endpoint is a page for a browser, without scripts, external resources or a redirect', async () => {
    const headers = { Accept: BROWSER, 'X-Request-Id': 'my-id' }
    const got = await ask(path, { headers })
    expect([got.status, got.headers['content-type']]).toEqual([400, 'text/html; charset=utf-8'])
    expect(got.headers).toMatchObject({
      'content-security-policy': expect.stringContaining("default-src 'none'"),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-request-id': 'my-id',
    })
    expect(got.headers).not.toHaveProperty('location')
    expect(got.body).toMatch(/^<!doctype html>/)
    expect(got.body).toContain('<title>400 Bad Request</title>')
    expect(got.body).toContain('must push its request')
    expect(got.body).toContain('my-id')
    expect(got.body).not.toMatch(/<(?:script|style|link|img|b)\b|https?:/)
    const refused = await ask('/oidc/auth?client_id=signing', { method: 'DELETE', headers })
    expect([refused.status, refused.headers['content-type']]).toEqual([405, 'text/html; charset=utf-8'])
  })

  it.each([
    undefined,
    '*/*',
    'application/json',
    'application/json, text/html;q=0.9',
    'text/html;q=0',
    '',
    'x'.repeat(9000),
  ])(
    'a refusal of the authorisation endpoint is JSON of RFC 6749 for callers that accept %j',
    async (accept) => {
      const got = await ask(path, { headers: accept === undefined ? {} : { Accept: accept } })
      expect([got.status, got.headers['content-type']]).toEqual([400, 'application/json'])
      expect(got.json).toEqual({
        error: 'invalid_request',
        error_description: expect.stringContaining('must push'),
      })
    },
  )

  it('keeps the connection', async () => {
    const get = `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
    const last = `GET ${PUSHED} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`
    expect(statuses((await raw(gateway.port, get + last)).text)).toEqual([400, 303])
  })
})
