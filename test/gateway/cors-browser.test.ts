import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { startBrowser } from '../helpers/browser.ts'
import { startGateway, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

const pages = await startUpstream((_, response) => {
  response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>A page</title>')
})
const strangers = await startUpstream((_, response) => {
  response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>Another page</title>')
})
const back = await startUpstream((request, response) => {
  if (request.url === '/broken') return response.destroy()
  const own = { 'Access-Control-Allow-Origin': pages.url, 'Access-Control-Expose-Headers': 'X-Total' }
  const fields = { 'X-Total': '7', 'X-Hidden': '1', ...(request.url === '/own' ? own : {}) }
  return response.writeHead(200, fields).end(request.headers.cookie ?? 'no cookie')
})

const start = (cors: object) =>
  startGateway({
    data: back.url,
    limits: { requests: { per: ['client'], limit: 1, window: '1m' } },
    routes: [
      { match: 'GET,PUT /calls', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
      { match: '/admin', upstream: 'data', authenticate: 'bearer', scope: ['admin'] },
      { match: '/closed', upstream: 'data', authenticate: 'none', cors: 'none' },
      { match: 'GET,PUT /:name', upstream: 'data', authenticate: 'none' },
    ],
    more: { headers: { draft: 'draft-10' }, cors },
  })
const gateway = await start({ origins: [pages.url] })
const withCookies = await start({ origins: [pages.url], credentials: true })
const open = await start({ origins: ['*'] })

const browser = await startBrowser()
const page = await browser.newPage()
afterAll(() => page.close())
beforeEach(async () => {
  await page.goto(pages.url)
})

interface Options {
  readonly method?: string
  readonly token?: string
  readonly credentials?: 'include'
}

/** Calls a gateway from the page, and returns what the page can read: the status, the body and the fields. */
async function fetchFromPage({ port }: { port: number }, path: string, options: Options = {}) {
  const input = { url: `http://127.0.0.1:${port}${path}`, ...options }
  return await page.evaluate(async ({ url, method, token: bearer, credentials }) => {
    const headers: Record<string, string> = bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }
    try {
      const response = await fetch(url, {
        method: method ?? 'GET',
        headers,
        credentials: credentials ?? 'same-origin',
      })
      return {
        status: response.status,
        body: await response.text(),
        fields: Object.fromEntries(response.headers),
      }
    } catch (error) {
      return { status: String(error).replace(/:.*/, ''), body: '', fields: {} as Record<string, string> }
    }
  }, input)
}
const UNREADABLE = { status: 'TypeError', body: '', fields: {} }

describe('a page of an allowed origin', () => {
  it('calls with a token after a preflight, and reads the limit; its next call gets a 429 that it can read', async () => {
    const bearer = await token('page')
    const first = await fetchFromPage(gateway, '/calls', { method: 'PUT', token: bearer })
    expect([first.status, first.body]).toEqual([200, 'no cookie'])
    expect(first.fields).toMatchObject({ 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0' })
    expect(first.fields).not.toHaveProperty('x-hidden')

    const second = await fetchFromPage(gateway, '/calls', { method: 'PUT', token: bearer })
    expect([second.status, JSON.parse(second.body)]).toEqual([
      429,
      expect.objectContaining({ code: 'TooManyRequests' }),
    ])
    expect(second.fields).toEqual(
      expect.objectContaining({
        'x-ratelimit-remaining': '0',
        'x-ratelimit-reset': expect.stringMatching(/Z$/) as string,
        'retry-after': expect.stringMatching(/^\d+$/) as string,
        ratelimit: expect.stringContaining('"requests"') as string,
        'ratelimit-policy': expect.stringContaining('"requests"') as string,
        'x-request-id': expect.stringMatching(/./) as string,
      }),
    )
  })

  it('reads a 400, a 401, a 403, a 405 and a 502', async () => {
    const expired = await fetchFromPage(gateway, '/calls', { token: 'expired' })
    expect(expired.status).toBe(401)
    expect(expired.fields['www-authenticate']).toMatch(/^Bearer .*error="invalid_token"/)
    const bearer = await token('reader')
    expect((await fetchFromPage(gateway, '/admin', { token: bearer })).status).toBe(403)
    expect((await fetchFromPage(gateway, '/%00')).status).toBe(400)
    expect((await fetchFromPage(gateway, '/calls', { method: 'POST', token: bearer })).status).toBe(405)
    expect((await fetchFromPage(gateway, '/broken')).status).toBe(502)
  })

  it('sends no method that no route of the path allows, and reads nothing of a route with cors: none', async () => {
    const seen = back.seen.length
    expect(await fetchFromPage(gateway, '/calls', { method: 'DELETE', token: await token('page') })).toEqual(
      UNREADABLE,
    )
    expect(await fetchFromPage(gateway, '/closed', { method: 'PUT' })).toEqual(UNREADABLE)
    // The preflight of a route without cors is an ordinary request.
    expect(back.seen.slice(seen).map(({ method }) => method)).toEqual(['OPTIONS'])
  })

  it('reads the fields that the upstream exposes and those of the gateway, if the upstream allows the origin', async () => {
    const { status, fields } = await fetchFromPage(gateway, '/own')
    expect([status, fields['x-total'], fields['x-hidden']]).toEqual([200, '7', undefined])
    expect(fields).toHaveProperty('x-request-id')
  })

  it('sends its cookies only with credentials: true', async () => {
    await page.evaluate("document.cookie = 'session=secret'")
    const options = { credentials: 'include' } as const
    expect(await fetchFromPage(gateway, '/a', options)).toEqual(UNREADABLE)
    expect(await fetchFromPage(open, '/a', options)).toEqual(UNREADABLE)
    expect((await fetchFromPage(withCookies, '/a', options)).body).toBe('session=secret')
    expect((await fetchFromPage(withCookies, '/a', { ...options, method: 'PUT' })).body).toBe(
      'session=secret',
    )
    expect((await fetchFromPage(gateway, '/a')).body).toBe('no cookie')
  })
})

it('a page of another origin reads nothing, and sends nothing that needs a preflight, unless every origin is allowed', async () => {
  await page.goto(strangers.url)
  const seen = back.seen.length
  const bearer = await token('stranger')
  expect(await fetchFromPage(gateway, '/calls', { token: bearer })).toEqual(UNREADABLE)
  expect(await fetchFromPage(withCookies, '/a', { method: 'PUT', credentials: 'include' })).toEqual(
    UNREADABLE,
  )
  expect(back.seen.length).toBe(seen)
  expect(await fetchFromPage(gateway, '/a')).toEqual(UNREADABLE)
  expect((await fetchFromPage(open, '/calls', { token: bearer })).fields).toHaveProperty(
    'x-ratelimit-remaining',
    '0',
  )
  expect((await fetchFromPage(open, '/calls', { token: bearer })).status).toBe(429)
})
