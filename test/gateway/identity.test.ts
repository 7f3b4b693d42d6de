import { fileURLToPath } from 'node:url'
import * as oidc from 'openid-client'
import { expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { start } from '../../src/process/start.ts'
import { closeLater } from '../helpers/closing.ts'
import { signJws } from '../helpers/issuer.ts'
import { startProvider } from '../helpers/provider.ts'
import { freePort } from '../helpers/ports.ts'
import { startUpstream } from '../helpers/upstream.ts'

const LIMIT = 100
const SCOPE = 'openid accounts:read transactions:read'
/** All responses to openid-client and to the browser. */
const answers: Response[] = []

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

const watched: oidc.CustomFetch = async (url, options) => {
  const answer = await fetch(url, options as RequestInit)
  answers.push(answer.clone())
  return answer
}

const asBasic = (): Promise<oidc.Configuration> =>
  oidc.discovery(
    new URL(issuer),
    provider.basic.id,
    undefined,
    oidc.ClientSecretBasic(provider.basic.secret),
    { execute: [oidc.allowInsecureRequests], [oidc.customFetch]: watched },
  )

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

const call = (token: string): Promise<Response> =>
  fetch(`${gateway}/v3/transactions`, { headers: { authorization: `Bearer ${token}` } })

it('an OpenID client pushes a request, gets a token of the user after the login, and cannot use another JWT as one', async () => {
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

  const back = await logIn(url, 'ada')
  expect(back.href).toContain(provider.redirectUri)
  const tokens = await oidc.authorizationCodeGrant(config, back, {
    expectedState: 'a-state',
    expectedNonce: 'a-nonce',
    idTokenExpected: true,
  })
  expect(tokens.claims()).toMatchObject({ iss: issuer, sub: 'ada', aud: provider.basic.id })
  expect((await call(tokens.access_token)).status).toBe(200)
  // Responses of the identity backend have no rate-limit fields.
  expect(answers.length).toBeGreaterThan(0)
  for (const { headers, url } of answers)
    expect([url, [...headers.keys()].filter((name) => name.includes('ratelimit'))]).toEqual([url, []])

  const { key, id } = provider.signing
  const exp = Math.floor(Date.now() / 1000) + 60
  const assertion = { iss: id, sub: id, aud: issuer, client_id: id, jti: 'one', exp }
  for (const other of [tokens.id_token!, signJws({ alg: 'PS256', kid: key.kid }, assertion, key)]) {
    const misused = await call(other)
    expect(misused.status).toBe(401)
    expect(misused.headers.get('www-authenticate')).toContain('error="invalid_token"')
  }
})
