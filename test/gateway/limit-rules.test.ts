import { connect } from 'node:net'
import { beforeEach, describe, expect, it } from 'vitest'
import { call, type Call, type Got, startGateway, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

const LIMITS = `limits:
  consents: { per: [client, "claim:consent"], limit: 1, window: 1h }
  orgs: { per: [client, "header:X-Org"], limit: 1, window: 1h }
  optional: { per: [client, "claim:consent", "header:X-Org"], limit: 1, window: 1h, missing: skip }
  unattended: { per: [client], limit: 1, window: 1h, unless: { header: PSU-IP-Address, is: ip } }
  posts: { per: [client], limit: 1, window: 1h, when: [{ method, is: POST }, { claim: tier, is: [basic, free] }] }
  claimed: { per: [client], limit: { claim: calls, default: 2, max: 3 }, window: 1h }
  tokens: { per: [token], limit: 1, window: 1h }
  routes: { per: [client, route], limit: 1, window: 1h }
  everybody: { per: [], limit: 2, window: 1h }
  open: { per: ["header:X-Org"], limit: 1, window: 1h }
  fixed:
    per: [client]
    limit: 0
    window: 1h
    refusal: { status: 403, headers: { X-Reason: quota }, body: { tppMessages: [{ category: ERROR, code: ACCESS_EXCEEDED }] } }
  plain: { per: [client], limit: 0, window: 2h, refusal: { body: Later. } }
  html: { per: [client], limit: 0, window: 1h, refusal: { status: 429, headers: { Content-Type: text/html }, body: <p>Later.</p> } }
  bare: { per: [client], limit: 0, window: 1h, refusal: { status: 529 } }
  month: { per: [client], limit: 1, window: { calendar: month, timezone: Europe/Lisbon } }
  week: { per: [client], limit: 1, window: { calendar: week, firstDay: sunday } }
  points: { per: [client], limit: 10, window: 1h }
`
const route = (path: string, limits: string, authenticate = 'bearer'): string =>
  `  - { match: "${path}", upstream: data, authenticate: ${authenticate}, limits: [${limits}] }\n`
const NAMES = [...LIMITS.matchAll(/^ {2}([a-z]+):/gm)]
  .map(([, name]) => name!)
  .filter((name) => name !== 'open')
const ROUTES = `routes:
  - { match: "/limits", respond: limits, authenticate: bearer }
${NAMES.map((name) => route(`/${name}`, name)).join('')}${route('/routes/two', 'routes')}${route('/open', 'open', 'none')}${route('/both', 'fixed, plain')}${route('/points/four', 'points, claimed', 'bearer, cost: { points: 4, claimed: 0 }')}${route('/points/none', 'points', 'bearer, cost: 0')}`

const upstream = await startUpstream()
const more = 'headers: { requestId: x-fapi-interaction-id }'
const gateway = await startGateway({ data: upstream.url, limits: LIMITS, routes: ROUTES, more })

let client = ''
beforeEach(({ task }) => {
  client = task.id
})
const ask = async (path: string, claims = {}, options: Call = {}): Promise<Got> =>
  call(gateway.port, { path, token: await token(client, claims), ...options })
const statusOf = async (...asked: Parameters<typeof ask>): Promise<number> => (await ask(...asked)).status
const org = (name: string): Call => ({ headers: { 'X-Org': name } })

describe('a limit by a claim', () => {
  it('a limit by a claim has a counter for each value, and refuses with 403 without it', async () => {
    expect(await statusOf('/consents', { consent: 'a' })).toBe(200)
    expect(await statusOf('/consents', { consent: 'a' })).toBe(429)
    expect(await statusOf('/consents', { consent: 'b' })).toBe(200)
    for (const consent of [undefined, null, '', 'a\ud800b', 'a\nb', { id: 'a' }, ['a']]) {
      const refused = await ask('/consents', { consent })
      expect(refused).toMatchObject({ status: 403, json: { code: 'Forbidden' } })
      expect(refused.json.detail).toContain('"consent"')
      expect(refused.headers).not.toHaveProperty('x-ratelimit-limit')
    }
  })
})

describe('a limit by a header field', () => {
  it('a limit by a header field has a counter for each value, ignoring case, and refuses with 400 without exactly one of its kind', async () => {
    expect(await statusOf('/orgs', {}, org('a'))).toBe(200)
    expect(await statusOf('/orgs', {}, org('A'))).toBe(429)
    expect(await statusOf('/orgs', {}, org('b'))).toBe(200)
    expect(await statusOf('/orgs')).toBe(400)
    expect(await statusOf('/orgs', {}, org('a b'))).toBe(400)
    expect(await statusOf('/orgs', {}, { headers: { 'X-Org': ['c', 'd'] } })).toBe(400)
  })

  it('counts on open routes, too', async () => {
    const statuses = []
    for (const headers of [{ 'X-Org': 'a' }, { 'X-Org': 'a' }, { 'X-Org': 'b' }, {}])
      statuses.push((await call(gateway.port, { path: '/open', headers })).status)
    expect(statuses).toEqual([200, 429, 200, 400])
  })

  it('a limit by a header field is left out with missing: skip, with its header fields', async () => {
    const skipped = await ask('/optional', { consent: 'a' })
    expect(skipped.status).toBe(200)
    expect(skipped.headers).not.toHaveProperty('x-ratelimit-limit')
    expect(await statusOf('/optional', {}, org('a'))).toBe(200)
    expect(await statusOf('/optional', { consent: 'a' }, org('a'))).toBe(200)
    expect(await statusOf('/optional', { consent: 'a' }, org('a'))).toBe(429)
  })
})

describe('a limit', () => {
  it('a limit by token, route or nothing has a counter for each token, for each route, or one', async () => {
    const own = await token(client)
    expect(await statusOf('/tokens', {}, { token: own })).toBe(200)
    expect(await statusOf('/tokens', {}, { token: own })).toBe(429)
    expect(await statusOf('/tokens')).toBe(200)
    const routes = [await statusOf('/routes'), await statusOf('/routes'), await statusOf('/routes/two')]
    expect(routes).toEqual([200, 429, 200])
    const everybody = []
    for (const one of ['a', 'b', 'c'])
      everybody.push(await statusOf('/everybody', {}, { token: await token(`${client}-${one}`) }))
    expect(everybody).toEqual([200, 200, 429])
  })

  it('a limit is left out while a condition of unless holds: no charge, no header fields, no refusal', async () => {
    const attended = { headers: { 'psu-ip-address': '192.0.2.1' } }
    for (let i = 0; i < 3; i++) {
      const got = await ask('/unattended', {}, attended)
      expect(got.status).toBe(200)
      expect(got.headers).not.toHaveProperty('x-ratelimit-remaining')
    }
    const counted = await ask('/unattended', {}, { headers: { 'psu-ip-address': 'yes' } })
    expect(counted).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '0' } })
    expect(await statusOf('/unattended')).toBe(429)
    expect(await statusOf('/unattended', {}, attended)).toBe(200)
  })

  it('applies only if all conditions of when hold', async () => {
    const post: Call = { method: 'POST' }
    for (const asked of [[{}, post], [{ tier: 'free' }], [{ tier: 'gold' }, post]] as const)
      expect((await ask('/posts', ...asked)).headers).not.toHaveProperty('x-ratelimit-limit')
    expect(await statusOf('/posts', { tier: 'free' }, post)).toBe(200)
    expect(await statusOf('/posts', { tier: ['x', 'basic'] }, post)).toBe(429)
  })

  it('takes its value from the token, up to max', async () => {
    const limitOf = async (calls?: unknown) => (await ask('/claimed', { calls })).headers['x-ratelimit-limit']
    expect([await limitOf(1), await limitOf(9), await limitOf()]).toEqual(['1', '3', '2'])
    expect(await statusOf('/claimed', { calls: 'many' })).toBe(429)
  })

  it('counts the points that a route’s calls take', async () => {
    const shown = async (path: string) => {
      const { status, headers } = await ask(path)
      return [status, headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']]
    }
    expect(await shown('/points')).toEqual([200, '10', '9'])
    expect(await shown('/points/four')).toEqual([200, '10', '5'])
    expect(await shown('/points/four')).toEqual([200, '10', '1'])
    expect(await shown('/points/four')).toEqual([429, '10', '1'])
    expect((await ask('/points/four')).json.detail).toMatch(
      /^The limit "points" allows 10 points in 1 hour; this call takes 4\. Retry in 3\d{3} seconds\.$/,
    )
    expect(await shown('/points/none')).toEqual([200, undefined, undefined])
    expect(await shown('/points')).toEqual([200, '10', '0'])
    expect((await ask('/points')).json.detail).toMatch(/10 points in 1 hour; this call takes 1\. Retry/)
    const { limits } = (await ask('/limits')).json
    expect(limits).toContainEqual(expect.objectContaining({ name: 'points', limit: 10, remaining: 0 }))
  })

  it('names its calendar in the 429, and in the caller’s own limits', async () => {
    expect(await statusOf('/month')).toBe(200)
    const { detail } = (await ask('/month')).json
    expect(detail).toContain('allows 1 call in a calendar month (Europe/Lisbon). Retry')
    expect(await statusOf('/week')).toBe(200)
    expect((await ask('/week')).json.detail).toContain('in a calendar week from sunday (UTC). Retry')
    const { limits } = (await ask('/limits', { calls: 3 })).json
    expect(limits).toContainEqual(
      expect.objectContaining({ name: 'month', calendar: { unit: 'month', timezone: 'Europe/Lisbon' } }),
    )
    const calendar = { unit: 'week', timezone: 'UTC', firstDay: 'sunday' }
    const windowSeconds = 7 * 86_400
    expect(limits).toContainEqual(expect.objectContaining({ name: 'week', calendar, windowSeconds }))
    expect(limits).toContainEqual(expect.objectContaining({ name: 'claimed', limit: 3 }))
  })
})

describe('a refusal of a limit', () => {
  it('a refusal of a limit has its status, header fields and body, and the rate-limit fields', async () => {
    const got = await ask('/fixed', {}, { headers: { 'X-Fapi-Interaction-Id': 'mine' } })
    expect(got).toMatchObject({
      status: 403,
      headers: {
        'content-type': 'application/json',
        'x-reason': 'quota',
        'x-ratelimit-limit': '0',
        'x-ratelimit-remaining': '0',
        'retry-after': '3600',
        'x-fapi-interaction-id': 'mine',
        'cache-control': 'no-store',
      },
      body: '{"tppMessages":[{"category":"ERROR","code":"ACCESS_EXCEEDED"}]}',
    })
  })

  it('a refusal of a limit is a text, or of another type, or the usual body with another status', async () => {
    const plain = { 'content-type': 'text/plain; charset=utf-8' }
    expect(await ask('/plain')).toMatchObject({ status: 429, headers: plain, body: 'Later.' })
    const html = await ask('/html')
    expect(html).toMatchObject({
      status: 429,
      headers: { 'content-type': 'text/html' },
      body: '<p>Later.</p>',
    })
    expect(html.rawHeaders.filter((name) => /^content-type$/i.test(name))).toHaveLength(1)
    const bare = await ask('/bare')
    expect(bare).toMatchObject({ status: 529, headers: { 'content-type': 'application/problem+json' } })
    expect(bare.json).toMatchObject({ status: 529, code: 'TooManyRequests' })
  })

  it('a refusal of a limit is that of the limit with the longest wait', async () => {
    expect(await ask('/both')).toMatchObject({ status: 429, body: 'Later.' })
  })
})

describe('headers.requestId', () => {
  const id = { 'x-fapi-interaction-id': 'mine' }
  const lastSeen = () => upstream.seen.at(-1)!.headers

  it('names the field in requests and responses; X-Request-Id is then an ordinary field', async () => {
    const got = await ask(
      '/everybody',
      {},
      { headers: { ...id, 'X-Request-Id': 'other', x_fapi_interaction_id: 'x' } },
    )
    expect(got.headers).toMatchObject(id)
    expect(got.headers).not.toHaveProperty('x-request-id')
    const open = await call(gateway.port, {
      path: '/open',
      headers: { ...id, 'X-Org': 'z', 'X-Request-Id': 'o', x_fapi_interaction_id: 'x' },
    })
    expect(open.headers).toMatchObject(id)
    expect(lastSeen()).toMatchObject({ ...id, 'x-request-id': 'o' })
    expect(lastSeen()).not.toHaveProperty('x_fapi_interaction_id')
  })

  it('headers.requestId is in the reply to invalid HTTP', async () => {
    const text = await new Promise<string>((resolve) => {
      const socket = connect(gateway.port, '127.0.0.1', () => socket.write('garbage\r\n\r\n'))
      socket.once('data', (bytes) => resolve(bytes.toString()))
    })
    expect(text).toMatch(/\r\nx-fapi-interaction-id: [\da-f-]{36}\r\n/)
    expect(text).not.toContain('X-Request-Id')
  })
})
