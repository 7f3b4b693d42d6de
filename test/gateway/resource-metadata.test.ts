import { describe, expect, it } from 'vitest'
import { call, ISSUER, startGateway, token, TOKENS } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

const PATH = '/.well-known/oauth-protected-resource'
const data = await startUpstream((_, response) => response.end('from the upstream'))
const withResource = (settings: string) => TOKENS.replace(' }', `, ${settings} }`)
const routes = `routes:
  - { match: "/payments", upstream: data, authenticate: bearer, scope: [payments:write, accounts:read] }
  - { match: "/*", upstream: data, authenticate: bearer, scope: [accounts:read] }`
const started = (settings: string, more = {}) =>
  startGateway({ data: data.url, tokens: withResource(settings), limits: '', routes, ...more })

describe('the metadata of a resource', () => {
  it('the metadata of a resource is served without a token, before a route for any path', async () => {
    const { port } = await started('resource: "https://api.example.com"')
    const { status, headers, json } = await call(port, { path: PATH })
    expect([status, headers['content-type']]).toEqual([200, 'application/json'])
    expect(json).toEqual({
      resource: 'https://api.example.com',
      authorization_servers: [ISSUER],
      bearer_methods_supported: ['header'],
      scopes_supported: ['accounts:read', 'payments:write'],
    })
    const post = await call(port, { path: PATH, method: 'POST' })
    expect([post.status, post.headers.allow]).toEqual([405, 'GET, HEAD'])
    for (const path of [`${PATH}x`, `${PATH}/bank`, '/.well-known', `/v3${PATH}`])
      expect((await call(port, { path })).status).toBe(401)
  })

  it('the metadata of a resource has the path of the resource after its own, on the host of the resource', async () => {
    const { port } = await started('resource: "https://api.example.com/bank"', {
      listen: ', hosts: [api.example.com, identity.example.com]',
    })
    const statusAt = async (path: string, Host: string) =>
      (await call(port, { path, headers: { Host } })).status
    expect(await statusAt(`${PATH}/bank`, 'api.example.com')).toBe(200)
    expect(await statusAt(PATH, 'api.example.com')).toBe(401)
    expect(await statusAt(`${PATH}/bank`, 'identity.example.com')).toBe(401)
  })

  it('the metadata of a resource says that DPoP is required, and with which algorithms', async () => {
    const listen = ', hosts: [api.example.com]'
    const { port } = await started('bound: required, resource: "https://api.example.com"', { listen })
    const { json } = await call(port, { path: PATH, headers: { Host: 'api.example.com' } })
    expect(json).toMatchObject({ dpop_bound_access_tokens_required: true })
    expect(
      (json as { dpop_signing_alg_values_supported: unknown }).dpop_signing_alg_values_supported,
    ).toContain('ES256')
    expect(json).not.toHaveProperty('tls_client_certificate_bound_access_tokens')
  })

  it('the metadata of a resource says that certificates are supported, so that DPoP is not required', async () => {
    const more = { trustedProxies: '[192.0.2.1]' }
    const { port } = await started('bound: required, resource: "https://api.example.com/"', more)
    const { json } = await call(port, { path: PATH })
    expect(json).toMatchObject({ tls_client_certificate_bound_access_tokens: true })
    expect(json).not.toHaveProperty('dpop_bound_access_tokens_required')
  })
})

it('challenges name the metadata of the resource', async () => {
  const { port } = await started('resource: "https://api.example.com/bank"')
  const named = `resource_metadata="https://api.example.com${PATH}/bank"`
  const challenge = async (request: object) => (await call(port, request)).headers['www-authenticate']
  expect(await challenge({})).toBe(`Bearer realm="identity.example.com", ${named}`)
  expect(await challenge({ token: 'a.b.c' })).toContain(`${named}, error="invalid_token"`)
  expect(await challenge({ token: await token('acme') })).toMatch(
    new RegExp(`^Bearer error="insufficient_scope", .*, ${named}$`),
  )
})
