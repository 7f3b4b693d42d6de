import { mkdtempSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, type Call, startGateway, startLogging, token } from '../helpers/gateway.ts'
import { raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const folder = createFolder()
const file = join(folder, 'keys.yaml')
const [acme, second, zoe, expired] = Array.from({ length: 4 }, createKeyText) as [
  string,
  string,
  string,
  string,
]
const imported = 'a-key-of-another-gateway'
const itemOf = (id: string, key: string, more = '') =>
  `- { id: "${id}", sha256: "${hashOfKey(key)}"${more} }\n`
writeFileSync(
  file,
  '# The keys of the customers.\n' +
    itemOf('acme', acme) +
    itemOf('acme', second, ', until: 2099-01-01T00:00:00Z') +
    itemOf('Zoë ä', zoe) +
    itemOf('late', expired, ', until: 2020-01-01T00:00:00Z') +
    itemOf('old', imported),
)

const data = await startUpstream()
const ROUTES = [
  { match: '/both', upstream: 'data', authenticate: ['bearer', 'key'], limits: ['requests'] },
  { match: '/token', upstream: 'data', authenticate: 'bearer' },
  { match: '/open', upstream: 'data', authenticate: 'none' },
  { match: 'GET /limits', respond: 'limits', authenticate: 'key' },
  { match: '/*', upstream: 'data', authenticate: 'key', limits: ['requests'] },
]
const settings = { data: data.url, routes: ROUTES, more: { keys: { file } } }
const gateway = await startLogging(settings)
const send = (key: string | undefined, more: Call = {}) =>
  call(gateway.port, {
    path: '/',
    ...more,
    headers: { ...(key !== undefined && { 'X-Api-Key': key }), ...more.headers },
  })
const last = () => data.seen.at(-1)!.headers
const BEARER = 'Bearer realm="identity.example.com"'

describe('a caller with an API key', () => {
  it('is the client of the key in limits and in the log, and the upstream gets the client in place of the key', async () => {
    const remaining = []
    for (const key of [acme, second, acme]) {
      const { status, headers } = await send(key, { headers: { 'X-Sluice-Client': 'mallory' } })
      expect(status).toBe(200)
      remaining.push(headers['x-ratelimit-remaining'])
      expect(last()).toMatchObject({ 'x-sluice-client': 'acme' })
      expect(last()).not.toHaveProperty('x-api-key')
    }
    expect(remaining).toEqual(['999', '998', '997'])
    const limits = await send(acme, { path: '/limits' })
    expect(limits.json.limits).toMatchObject([{ name: 'requests', limit: 1000, remaining: 997 }])
    const shown = await call(gateway.adminPort, { path: '/limits/acme' })
    expect(shown.json.limits).toContainEqual(expect.objectContaining({ name: 'requests', remaining: 997 }))
    await until('its calls are logged', () => gateway.lines().some(({ client }) => client === 'acme'))
  })

  it('has an id of any characters, percent-encoded for the upstream', async () => {
    expect((await send(zoe)).status).toBe(200)
    expect(last()['x-sluice-client']).toBe('Zo%C3%AB%20%C3%A4')
  })

  it('may have a key of another gateway', async () => {
    expect((await send(imported)).status).toBe(200)
    expect(last()['x-sluice-client']).toBe('old')
  })

  it('gets the key forwarded with keys.forward', async () => {
    const { port } = await startGateway({ ...settings, more: { keys: { file, forward: true } } })
    const headers = { 'X-Api-Key': acme, x_api_key: 'another', Connection: 'X-Api-Key' }
    expect((await call(port, { path: '/', headers })).status).toBe(200)
    expect(last()).toMatchObject({ 'x-api-key': acme, 'x-sluice-client': 'acme' })
    expect(last()).not.toHaveProperty('x_api_key')
  })

  it('is not shown by its key in the log, also if it sends the key in the path or as the request id', async () => {
    const headers = { 'X-Request-Id': acme }
    for (const [path, key] of [
      [`/bots/${acme}/${second}_2`, acme],
      [`/bots/%73lk_${acme.slice(4)}`, undefined],
      [`/bots/${acme}?x#;${acme}`, undefined],
      [`//${acme}`, acme],
    ] as const) {
      const { headers: got } = await send(key, { path, headers })
      expect(got['x-request-id']).not.toContain(acme)
    }
    const ofBots = () => gateway.lines().filter(({ path }) => String(path).startsWith('/bots/slk_…'))
    await until('its calls are logged', () => ofBots().length === 3)
    expect(ofBots()[0]!['path']).toBe('/bots/slk_…/slk_…_2')
    for (const key of [acme, second, zoe, expired, imported]) expect(gateway.stdout()).not.toContain(key)
  })
})

describe('a caller without a valid key', () => {
  const MISSING = 'Send an API key as "X-Api-Key: KEY", not in the query.'
  const WRONG = 'The API key is not valid.'

  it.each([
    ['no key', undefined, MISSING],
    ['an empty field', '', MISSING],
    ['a key that was never made', createKeyText(), WRONG],
    ['a key with another last character', acme.slice(0, -1) + (acme.endsWith('a') ? 'b' : 'a'), WRONG],
    ['a key that was cut', acme.slice(0, -1), WRONG],
    ['a key in upper case', acme.toUpperCase(), WRONG],
    ['a hash in place of its key', hashOfKey(acme), WRONG],
    ['two keys in one field', `${acme}, ${second}`, WRONG],
    ['a key after a scheme', `ApiKey ${acme}`, WRONG],
    ['a key in quotes', `"${acme}"`, WRONG],
    ['a key with a blank inside', `${acme.slice(0, 9)} ${acme.slice(9)}`, WRONG],
    ['a key with a letter of another script', acme.replace('k', '\u00e9'), WRONG],
    ['a key with a soft hyphen', `${imported}\u00ad`, WRONG],
    ['a long text', 'k'.repeat(257), WRONG],
    ['the name of a property', '__proto__', WRONG],
    ['an expired key', expired, 'The API key has expired.'],
  ])('gets a 401 with a challenge for %s', async (_, key, detail) => {
    const before = data.seen.length
    const { status, headers, json } = await send(key)
    expect(status).toBe(401)
    expect(headers['www-authenticate']).toBe('ApiKey')
    expect(headers).not.toHaveProperty('x-ratelimit-limit')
    expect(json).toMatchObject({ code: 'Unauthorized', detail })
    expect(data.seen.length).toBe(before)
  })

  it('gets a 401 for a key in the query or in the cookies', async () => {
    for (const path of [`/?x-api-key=${acme}`, `/?apikey=${acme}`]) {
      const { status, json } = await send(undefined, { path, headers: { Cookie: `x-api-key=${acme}` } })
      expect([status, json.detail]).toEqual([401, MISSING])
    }
  })

  it('gets a 401 for another spelling of the field, which the upstream never gets', async () => {
    for (const name of ['x_api_key', 'X-API_KEY', 'X.Api.Key', 'XApiKey', 'X-Api-Key2', 'Authorization'])
      expect((await send(undefined, { headers: { [name]: acme } })).status).toBe(401)
    const headers = { x_api_key: 'other', 'X.Api-Key': 'other' }
    expect((await send(acme, { headers })).status).toBe(200)
    expect(Object.keys(last()).filter((name) => /api/i.test(name))).toEqual([])
    const open = { path: '/open', headers: { ...headers, 'X-API-KEY': acme } }
    expect((await send(undefined, open)).status).toBe(200)
    expect(Object.keys(last()).filter((name) => /api/i.test(name))).toEqual([])
  })

  it('gets a 400 for two fields, in any case and also with equal keys', async () => {
    for (const [one, other] of [
      [acme, acme],
      [acme, 'x'],
      ['', acme],
    ]) {
      const lines = `GET / HTTP/1.1\r\nHost: a\r\nX-API-KEY: ${one}\r\nx-api-key: ${other}\r\nConnection: close\r\n\r\n`
      const { text } = await raw(gateway.port, lines)
      expect(text).toMatch(/^HTTP\/1\.1 400 /)
      expect(text).toContain('Send one X-Api-Key field, with one API key.')
    }
  })

  it('gets the same response for every wrong key, except ids and the date', async () => {
    const [one, other] = await Promise.all([send(createKeyText()), send('k'.repeat(40))])
    const without = ({ headers, json }: typeof one) => ({
      ...headers,
      ...json,
      date: 0,
      'x-request-id': 0,
      correlationId: 0,
    })
    expect(without(one)).toEqual(without(other))
  })

  it('is counted in failures, and then gets a 429 although the next key is valid', async () => {
    const more = { ...settings.more, failures: { limit: 3, window: '1m' } }
    const { port } = await startGateway({ ...settings, more })
    const statuses = []
    for (const key of [undefined, 'wrong', expired, acme]) {
      const headers: Record<string, string> = key === undefined ? {} : { 'X-Api-Key': key }
      statuses.push((await call(port, { path: '/', headers })).status)
    }
    expect(statuses).toEqual([401, 401, 401, 429])
  })

  it('gets a 403 for a valid and an invalid key over plain HTTP, as a trusted proxy reports', async () => {
    const { port } = await startGateway({ ...settings, trustedProxies: ['127.0.0.1'] })
    for (const path of ['/', '/both', '/open'])
      for (const key of [acme, 'wrong']) {
        const headers = { 'X-Api-Key': key, 'X-Forwarded-Proto': 'http', 'X-Forwarded-For': '192.0.2.7' }
        expect((await call(port, { path, headers })).status).toBe(403)
      }
  })
})

describe('a route for tokens and keys', () => {
  it('accepts either, as the same client', async () => {
    const client = 'both-ways'
    const key = createKeyText()
    const own = join(folder, 'both.yaml')
    writeFileSync(own, itemOf(client, key))
    const { port } = await startGateway({ ...settings, more: { keys: { file: own } } })
    const byToken = await call(port, { path: '/both', token: await token(client) })
    expect(byToken.headers['x-ratelimit-remaining']).toBe('999')
    expect(last()['x-sluice-client']).toBe(client)
    const byKey = await call(port, { path: '/both', headers: { 'X-Api-Key': key } })
    expect(byKey.headers['x-ratelimit-remaining']).toBe('998')
    expect(last()['x-sluice-client']).toBe(client)
  })

  it('refuses both credentials at once, and challenges for both', async () => {
    const valid = await token('acme')
    const both = await send(acme, { path: '/both', token: valid })
    expect([both.status, both.json.detail]).toEqual([400, 'Send an API key or an access token, not both.'])
    const missing = await send(undefined, { path: '/both' })
    expect(missing.json.detail).toBe(
      'Send an API key as "X-Api-Key: KEY", or an access token as "Authorization: Bearer TOKEN", not in the query.',
    )
    const wrong = await send('wrong', { path: '/both' })
    for (const { status, headers } of [missing, wrong]) {
      expect(status).toBe(401)
      expect(headers['www-authenticate']).toBe(`${BEARER}, ApiKey`)
    }
    // Credentials of another scheme are none here.
    const basic = await send(undefined, { path: '/both', headers: { Authorization: 'Basic YTpi' } })
    expect([basic.status, basic.json.detail]).toEqual([401, missing.json.detail])
    expect(basic.headers['www-authenticate']).toBe(`${BEARER}, ApiKey`)
    const refused = await send(undefined, { path: '/both', token: 'x.y' })
    expect(refused.status).toBe(401)
    expect(refused.headers['www-authenticate']).toMatch(/^Bearer realm=.*error="invalid_token".*, ApiKey$/)
  })

  it('names DPoP among the ways, where a host is known for which proofs are made', async () => {
    const { port } = await startGateway({ ...settings, listen: { hosts: ['127.0.0.1'] } })
    const { status, headers, json } = await call(port, { path: '/both' })
    expect([status, json.detail]).toEqual([
      401,
      'Send an API key as "X-Api-Key: KEY", or an access token as "Authorization: Bearer TOKEN" or as DPoP with a proof, not in the query.',
    ])
    expect(headers['www-authenticate']).toMatch(
      /^Bearer realm="[^"]+", DPoP realm="[^"]+", algs="[^"]+", ApiKey$/,
    )
    const onlyKeys = await call(port, { path: '/' })
    expect(onlyKeys.json.detail).toBe('Send an API key as "X-Api-Key: KEY", not in the query.')
  })

  it('leaves routes for tokens as they are: a key there is not a credential, and reaches no upstream', async () => {
    const { status, headers } = await send(acme, { path: '/token' })
    expect(status).toBe(401)
    expect(headers['www-authenticate']).toBe(BEARER)
    expect((await send(acme, { path: '/token', token: await token('acme') })).status).toBe(200)
    expect(last()).not.toHaveProperty('x-api-key')
    expect(last()).not.toHaveProperty('x-sluice-client')
  })
})

describe('the file of keys', () => {
  async function reloading() {
    const own = mkdtempSync(join(folder, 'reload-'))
    const [main, keys] = [join(own, 'sluice.yaml'), join(own, 'keys.yaml')]
    const [one, other] = [createKeyText(), createKeyText()]
    writeFileSync(keys, itemOf('one', one))
    const started = await startLogging({ ...settings, more: { keys: { file: 'keys.yaml' } } }, main)
    const statusOf = async (key: string) =>
      (await call(started.port, { path: '/', headers: { 'X-Api-Key': key } })).status
    return { ...started, own, keys, one, other, statusOf }
  }

  it('adds and revokes keys at a reload', async () => {
    const { keys, one, other, statusOf, running } = await reloading()
    expect([await statusOf(one), await statusOf(other)]).toEqual([200, 401])
    writeFileSync(keys, itemOf('one', other))
    await running.reload('file-change')
    expect([await statusOf(one), await statusOf(other)]).toEqual([401, 200])
    writeFileSync(keys, '[]\n')
    await running.reload('file-change')
    expect(await statusOf(other)).toBe(401)
  })

  it('follows a link that is swapped, as Kubernetes does', async () => {
    const { own, keys, one, other, statusOf, running } = await reloading()
    writeFileSync(join(own, 'v2.yaml'), itemOf('one', other))
    symlinkSync('v2.yaml', join(own, 'link'))
    renameSync(join(own, 'link'), keys)
    await running.reload('file-change')
    expect([await statusOf(one), await statusOf(other)]).toEqual([401, 200])
  })

  it.each(['', '- { id: one', '- { id: one, sha256: abc }', 'id: one'])(
    'stays in force if the new one is broken, which is logged with its place: %s',
    async (text) => {
      const { keys, one, statusOf, running, lines } = await reloading()
      writeFileSync(keys, text)
      await running.reload('file-change')
      expect(await statusOf(one)).toBe(200)
      const rejected = () => lines().find(({ msg }) => String(msg).startsWith('configuration rejected'))
      await until('it is logged', () => rejected() !== undefined)
      expect((rejected()!['problems'] as string[])[0]).toMatch(/^\/.*keys\.yaml:\d+:\d+: /)
    },
  )
})
