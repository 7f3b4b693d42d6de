import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { answered, raw, type RawAnswer, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The rest of `scenarios/calls.yaml`. */

const data = await startUpstream((_, response, body) => {
  const digest = createHash('sha256').update(body).digest('hex')
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ digest }))
})
const identity = await startUpstream()
const gateway = await startGateway({ data: data.url, identity: identity.url })

describe('the socket of a request', () => {
  it.each([
    ['that matches no route', 'GET /nowhere', 404],
    ['with an ambiguous target', 'GET /sync/..%2fx', 400],
    ['without a token', 'GET /v3/x', 401],
    ['that is over its limit, refused by the cache or by Redis', 'POST /v3/sync/kept', 429],
  ])('the socket of a request %s stays open', async (_, line, status) => {
    const authorization = status === 429 ? `Authorization: Bearer ${await token('kept')}\r\n` : ''
    const head = `${line} HTTP/1.1\r\nHost: a\r\n${authorization}Content-Length: 0\r\n\r\n`
    const answers: RawAnswer[] = []
    while (answers.length < 3) answers.push(await raw(gateway.port, head, answered))
    expect(statuses(answers.at(-1)!.text)).toEqual([status])
    for (const { text, closed } of answers) {
      expect(text).not.toContain('Connection: close')
      expect(closed).toBe(false)
    }
  })
})

it('a caller without an address, whose socket was reset at once, is not served', async () => {
  const before = identity.seen.length
  for (let i = 0; i < 20; i++) {
    const sockets = Array.from({ length: 10 }, () => connect(gateway.port, '127.0.0.1').on('error', () => {}))
    for (const socket of sockets) {
      socket.write('GET /oidc/reset HTTP/1.1\r\nHost: a\r\n\r\n')
      socket.resetAndDestroy()
    }
    await Promise.all(sockets.map((socket) => once(socket, 'close')))
  }
  expect((await call(gateway.port, { path: '/oidc/reset' })).status).toBe(200)
  const sent = identity.seen.slice(before).map(({ headers }) => headers['x-forwarded-for'])
  expect(new Set(sent)).toEqual(new Set(['127.0.0.1']))
})

it('a token in the query or in the body is ignored', async () => {
  const body = `access_token=${await token('x')}`
  const headers = { 'Content-Type': 'application/x-www-form-urlencoded' }
  for (const sent of [{ path: `/transactions?${body}` }, { method: 'POST', headers, body }])
    expect((await call(gateway.port, sent)).status).toBe(401)
})

it('Reset does not change as long as the oldest call has not left the window', async () => {
  const mine = await token('resets')
  const [first, second] = [
    await call(gateway.port, { token: mine }),
    await call(gateway.port, { token: mine }),
  ]
  expect(first.headers['x-ratelimit-reset']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  expect(second.headers['x-ratelimit-reset']).toBe(first.headers['x-ratelimit-reset'])
})

it('bodies with a length and in chunks are streamed byte for byte', async () => {
  const body = Buffer.alloc(3_000_000, 'äöü€')
  const digest = createHash('sha256').update(body).digest('hex')
  const sent = { method: 'POST', path: '/v3/x', token: await token('streams'), body }
  for (const headers of [{ 'Content-Length': String(body.length) }, { 'Transfer-Encoding': 'chunked' }])
    expect((await call(gateway.port, { ...sent, headers })).json).toEqual({ digest })
})

it.each(['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'])(
  'a blank %s asks for no other method, and is dropped',
  async (name) => {
    for (const value of ['', '  ', '\t', ['', ''], 'post', ['POST', '']]) {
      const got = await call(gateway.port, { method: 'POST', path: '/oidc/x', headers: { [name]: value } })
      expect([value, got.status]).toEqual([value, 200])
      expect(identity.seen.at(-1)!.headers).not.toHaveProperty(name.toLowerCase())
    }
    for (const value of ['put', ['', 'DELETE']]) {
      const got = await call(gateway.port, { method: 'POST', path: '/oidc/x', headers: { [name]: value } })
      expect([value, got.status]).toEqual([value, 400])
    }
  },
)
