import { connect } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import type { createLimiter } from '../../src/limit/limiter.ts'
import { call, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const given = vi.hoisted((): string[][] => [])
vi.mock(import('../../src/limit/limiter.ts'), async (original) => {
  const actual = await original()
  return {
    ...actual,
    createLimiter(...parts: Parameters<typeof createLimiter>) {
      const limiter = actual.createLimiter(...parts)
      return {
        ...limiter,
        giveBack(...back: Parameters<typeof limiter.giveBack>) {
          given.push(back[0].map(({ name }) => name))
          limiter.giveBack(...back)
        },
      }
    },
  }
})

let upstream: TestUpstream
let gateway: TestGateway
beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const how = request.headers['x-answer']
    if (how === 'never') return
    if (how === 'cut')
      response.writeHead(200, { 'content-length': '9' }).write('half', () => response.destroy())
    else if (how === 'slow') response.writeHead(200).write('half')
    else if (how === 'reset') response.destroy()
    else response.writeHead(Number(how)).end()
  })
  gateway = await startGateway({
    data: upstream.url,
    timeout: '1s',
    limits: `limits:
  requests: { per: [client], limit: 1000, window: 1m }
  month: { per: [client], limit: 100, window: { calendar: month }, count: success }
  last: { per: [client], limit: 100, window: { calendar: month }, count: success }
  none: { per: [client], limit: 0, window: { calendar: month }, count: success }`,
    routes: `routes:
  - { match: "/success", upstream: data, authenticate: bearer, limits: [requests, month] }
  - { match: "/last", upstream: data, authenticate: bearer, limits: [last] }
  - { match: "/none", upstream: data, authenticate: bearer, limits: [none] }
  - { match: "/all", upstream: data, authenticate: bearer, limits: [requests] }`,
  })
})
afterAll(async () => {
  await gateway.close()
  await upstream.close()
})
beforeEach(() => {
  given.length = 0
})

/** Returns the limits of the calls that were given back before one that is given back now. */
async function givenBack(): Promise<readonly string[][]> {
  await ask('/last', '500')
  const isLast = () => given.at(-1)?.[0] === 'last'
  await until('the last call is given back', isLast)
  return given.slice(0, -1)
}

const ask = async (path: string, answer: string) =>
  call(gateway.port, { path, token: await token('acme'), headers: { 'X-Answer': answer } })

it.each(['200', '204', '304'])('a call that is answered with %s is not given back', async (status) => {
  expect((await ask('/success', status)).status).toBe(Number(status))
  expect(await givenBack()).toEqual([])
})

it.each([
  ['400', 400],
  ['404', 404],
  ['429', 429],
  ['500', 500],
  ['reset', 502],
  ['never', 504],
])('a call that ends by %s is given back once', async (answer, status) => {
  expect((await ask('/success', answer)).status).toBe(status)
  await until('it is given back', () => given.length > 0)
  expect(await givenBack()).toEqual([['requests', 'month']])
})

it('a call whose response the upstream cuts is given back once', async () => {
  await expect(ask('/success', 'cut')).rejects.toThrow('aborted')
  await until('it is given back', () => given.length > 0)
  expect(await givenBack()).toEqual([['requests', 'month']])
})

/** Sends a request and leaves: after the first bytes of the response, or before them. */
async function leave(answer: string): Promise<void> {
  const seen = upstream.seen.length
  const socket = connect(gateway.port, '127.0.0.1')
  const authorization = `Bearer ${await token('acme')}`
  socket.write(
    `GET /success HTTP/1.1\r\nHost: a\r\nAuthorization: ${authorization}\r\nX-Answer: ${answer}\r\n\r\n`,
  )
  if (answer === 'slow') await new Promise((resolve) => socket.once('data', resolve))
  else await until('the upstream is asked', () => upstream.seen.length > seen)
  socket.destroy()
}

it('a call whose caller leaves before a response began is given back once', async () => {
  await leave('never')
  await until('it is given back', () => given.length > 0)
  expect(await givenBack()).toEqual([['requests', 'month']])
})

it('a call whose caller leaves a begun response is not given back', async () => {
  await leave('slow')
  await until('the gateway notices', () => upstream.sockets() === 0)
  expect(await givenBack()).toEqual([])
})

it('a call that was refused, or has no limit that counts only success, is not given back', async () => {
  expect((await ask('/none', '200')).status).toBe(429)
  expect((await ask('/all', '500')).status).toBe(500)
  expect(await givenBack()).toEqual([])
})
