import { webcrypto } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import * as oidc from 'openid-client'
import { beforeEach, describe, expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { start } from '../../src/process/start.ts'
import { closeLater } from '../helpers/closing.ts'
import { signJws } from '../helpers/issuer.ts'
import { startProvider } from '../helpers/provider.ts'
import { freePort } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

const LIMIT = 100
const SCOPE = 'openid accounts:read transactions:read'
/** All responses to openid-client. */
let answers: Response[]

const port = await freePort()
const gateway = `http://localhost:${port}`
const issuer = `${gateway}/oidc`
const provider = await startProvider({ issuer })
const data = await startUpstream()
const { config } = await loadConfig({
  file: fileURLToPath(new URL('../../config/sandbox.yaml', import.meta.url)),
  env: {
    SLUICE_PORT: String(port),
    SLUICE_ADMIN_PORT: '0',
    IDENTITY_URL: provider.url,
    DATA_URL: data.url,
    ISSUER: issuer,
    AUDIENCE: provider.audience,
    REQUEST_LIMIT: String(LIMIT),
  },
})
const running = await start({ ...config, log: { ...config.log, level: 'silent' }, drainTimeoutMs: 1000 })

closeLater(() => running.close())

beforeEach(() => {
  answers = []
})

const watched: oidc.CustomFetch = async (url, options) => {
  const answer = await fetch(url, options as RequestInit)
  answers.push(answer.clone())
  return answer
}

async function discover(id: string, authentication: oidc.ClientAuth): Promise<oidc.Configuration> {
  return oidc.discovery(new URL(issuer), id, undefined, authentication, {
    execute: [oidc.allowInsecureRequests],
    [oidc.customFetch]: watched,
  })
}

const asBasic = (): Promise<oidc.Configuration> =>
  discover(provider.basic.id, oidc.ClientSecretBasic(provider.basic.secret))

async function signingKey(): Promise<oidc.PrivateKey> {
  const { key } = provider.signing
  const pkcs8 = key.privateKey.export({ type: 'pkcs8', format: 'der' })
  const algorithm = { name: 'RSA-PSS', hash: 'SHA-256' }
  return { key: await webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']), kid: key.kid }
}

const asSigning = async (): Promise<oidc.Configuration> =>
  discover(provider.signing.id, oidc.PrivateKeyJwt(await signingKey()))

/** A browser that keeps cookies by name, and does not follow redirects. */
function browser() {
  const jar = new Map<string, string>()
  return async (url: URL, init: RequestInit = {}) => {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const answer = await fetch(url, { ...init, redirect: 'manual', headers: { cookie } })
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)!
      if (value === '') jar.delete(name!)
      else jar.set(name!, value!)
    }
    answers.push(answer)
    const location = answer.headers.get('location')
    return { answer, next: location === null ? undefined : new URL(location, url) }
  }
}

/** Follows the authorisation URL through the login to the client's redirect URI. */
async function logIn(url: URL, user: string): Promise<URL> {
  const visit = browser()
  const toLogin = await visit(url)
  expect(toLogin.answer.status).toBe(303)
  expect(toLogin.answer.headers.get('location')).toMatch(/^\/oidc\/interaction\/[\w-]+$/)
  const cookies = toLogin.answer.headers.getSetCookie()
  expect(cookies.length).toBeGreaterThanOrEqual(4)
  expect(cookies.some((line) => line.includes('path=/oidc/interaction/'))).toBe(true)
  expect(cookies.some((line) => line.includes('path=/oidc/auth/'))).toBe(true)

  expect((await visit(toLogin.next!)).answer.status).toBe(200)
  const resumed = await visit(toLogin.next!, {
    method: 'POST',
    body: new URLSearchParams({ prompt: 'login', login: user }),
  })
  expect(resumed.answer.headers.get('location')).toMatch(`${issuer}/auth/`)
  const { answer, next } = await visit(resumed.next!)
  expect(answer.status).toBe(303)
  return next!
}

const call = (token: string, path = '/v3/transactions'): Promise<Response> =>
  fetch(`${gateway}${path}`, { headers: { authorization: `Bearer ${token}` } })

function expectUnlimited(): void {
  expect(answers.length).toBeGreaterThan(0)
  for (const { headers, url } of answers) {
    expect([url, [...headers.keys()].filter((name) => name.includes('ratelimit'))]).toEqual([url, []])
  }
}

describe('an OpenID client through the gateway', () => {
  it('discovers a provider whose issuer is the gateway', async () => {
    const metadata = (await asBasic()).serverMetadata() as Record<string, unknown>
    expect(metadata).toMatchObject({
      issuer,
      authorization_endpoint: `${issuer}/auth`,
      token_endpoint: `${issuer}/token`,
      jwks_uri: `${issuer}/certs`,
      pushed_authorization_request_endpoint: `${issuer}/request`,
    })
    expect(JSON.stringify(metadata)).not.toContain(new URL(provider.url).port)
    expectUnlimited()
  })

  it('gets a token with client credentials, whose calls are counted', async () => {
    const config = await asBasic()
    const { access_token: token } = await oidc.clientCredentialsGrant(config, { scope: 'accounts:read' })
    const before = data.seen.length
    const first = await call(token)
    const second = await call(token)
    expect([first.status, second.status]).toEqual([200, 200])
    expect(first.headers.get('x-ratelimit-limit')).toBe(String(LIMIT))
    const left = Number(first.headers.get('x-ratelimit-remaining'))
    expect(Number(second.headers.get('x-ratelimit-remaining'))).toBe(left - 1)
    const { access_token: another } = await oidc.clientCredentialsGrant(config, { scope: 'accounts:read' })
    expect(another).not.toBe(token)
    expect((await call(another)).headers.get('x-ratelimit-remaining')).toBe(String(left - 2))
    expect(data.seen).toHaveLength(before + 3)
    expectUnlimited()
  })

  it('pushes plain parameters, and gets a token of the user after the login', async () => {
    const config = await asBasic()
    const parameters = {
      redirect_uri: provider.redirectUri,
      scope: SCOPE,
      state: 'a-state',
      nonce: 'a-nonce',
    }
    const url = await oidc.buildAuthorizationUrlWithPAR(config, { ...parameters, response_type: 'code' })
    expect(url.origin + url.pathname).toBe(`${issuer}/auth`)
    expect(url.searchParams.get('request_uri')).toMatch(/^urn:ietf:params:oauth:request_uri:/)
    expect(answers.at(-1)!.status).toBe(201)

    const back = await logIn(url, 'ada')
    expect(back.href).toContain(provider.redirectUri)
    const tokens = await oidc.authorizationCodeGrant(config, back, {
      expectedState: 'a-state',
      expectedNonce: 'a-nonce',
      idTokenExpected: true,
    })
    expect(tokens.claims()).toMatchObject({ iss: issuer, sub: 'ada', aud: provider.basic.id })
    expect((await call(tokens.access_token)).status).toBe(200)
    expectUnlimited()

    const misused = await call(tokens.id_token!)
    expect(misused.status).toBe(401)
    expect(misused.headers.get('www-authenticate')).toContain('error="invalid_token"')
  })

  it('pushes a signed request object with a client assertion, and gets a token', async () => {
    const config = await asSigning()
    const parameters = { redirect_uri: provider.redirectUri, scope: SCOPE, state: 'a-state' }
    const signed = await oidc.buildAuthorizationUrlWithJAR(config, parameters, await signingKey())
    const url = await oidc.buildAuthorizationUrlWithPAR(config, signed.searchParams)
    expect(answers.at(-1)!.status).toBe(201)
    const back = await logIn(url, 'grace')
    const tokens = await oidc.authorizationCodeGrant(config, back, { expectedState: 'a-state' })
    expect((await call(tokens.access_token)).status).toBe(200)
    expectUnlimited()
  })

  it('gets the refusals of the provider unchanged', async () => {
    const config = await discover(provider.basic.id, oidc.ClientSecretBasic('wrong'))
    const refused = oidc.buildAuthorizationUrlWithPAR(config, {
      redirect_uri: provider.redirectUri,
      scope: SCOPE,
    })
    await expect(refused).rejects.toMatchObject({ status: 401 })
    expect(await answers.at(-1)!.json()).toMatchObject({ error: 'invalid_client' })
    expect(answers.at(-1)!.headers.get('www-authenticate')).toContain(`Basic realm="${issuer}"`)
    expectUnlimited()
  })

  it('can also send the parameters in the query', async () => {
    const query = new URLSearchParams({
      client_id: provider.basic.id,
      response_type: 'code',
      scope: SCOPE,
      redirect_uri: provider.redirectUri,
      state: 'a&b=c d',
    })
    const back = await logIn(new URL(`${issuer}/auth?${query.toString()}`), 'ada')
    expect(back.searchParams.get('state')).toBe('a&b=c d')
    expect(back.searchParams.get('code')).toBeTruthy()
    expect(back.searchParams.get('iss')).toBe(issuer)
  })

  it('cannot use a client assertion as an access token', async () => {
    const config = await asSigning()
    await oidc.clientCredentialsGrant(config, { scope: 'accounts:read' })
    const { key, id } = provider.signing
    const exp = Math.floor(Date.now() / 1000) + 60
    const assertion = { iss: id, sub: id, aud: issuer, client_id: id, jti: 'one', exp }
    expect((await call(signJws({ alg: 'PS256', kid: key.kid }, assertion, key))).status).toBe(401)
  })
})
