import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { cpus } from 'node:os'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { ASKING, type AskingProxy, PLAIN, startAsking } from '../helpers/asking-proxies.ts'
import { startGateway, token } from '../helpers/gateway.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

const PROXIES = Object.keys(ASKING) as AskingProxy[]
const LIMITED = { 'X-RateLimit-Limit': 'of the backend', 'X-RateLimit-Remaining': 'of the backend' }
const answer: Parameters<typeof startUpstream>[0] = ({ headers, url }, response) =>
  void response
    .writeHead(200, {
      ...(headers['x-limited'] === undefined ? {} : LIMITED),
      ...(url === '/open/accel' && { 'X-Accel-Redirect': '/open/other' }),
    })
    .end()
const data = await startUpstream(answer)

async function start(from: AskingProxy, edit?: (name: string, text: string) => string) {
  const gateway = await startGateway({
    data: 'http://unused.internal',
    listen: PLAIN,
    routes: [
      { match: 'inner.example.com/*', authenticate: 'none' },
      { match: '/open/*', authenticate: 'none' },
      { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
    ],
    more: { forwardAuth: { port: 0, from } },
  })
  const { port } = await startAsking(from, [gateway], data.port, { ...(edit && { edit }) })
  return { gateway, port }
}

/** Sends a head over a bare socket. Returns the text of the answer. */
const send = async (port: number, line: string, ...fields: string[]) =>
  (await raw(port, [line, ...fields, '', ''].join('\r\n'), answered)).text
const HOST = 'Host: api.example.com'

describe.each(PROXIES)('%s that asks', (from) => {
  let asking: Awaited<ReturnType<typeof start>>
  beforeAll(async () => void (asking = await start(from)))
  beforeEach(() => void (data.seen.length = 0))

  it('refuses a Host longer than any name', async () => {
    for (const length of [300, 4000, 8200, 12_000]) {
      const text = await send(asking.port, 'GET /v3/a HTTP/1.1', `Host: ${'a'.repeat(length)}`)
      expect(statuses(text)[0], String(length)).toBeGreaterThanOrEqual(400)
    }
    expect(data.seen).toEqual([])
  })

  it.each(['X-Sluice-Client', 'X_Sluice_Client', 'X-Sluice_Client', 'x_sluice-client'])(
    'gives the backend the id of the client, and not the %s of the caller',
    async (name) => {
      const authorization = `Authorization: Bearer ${await token('ann')}`
      for (const connection of ['keep-alive', name, `keep-alive, ${name.toLowerCase()}`]) {
        const fields = [HOST, authorization, `Connection: ${connection}`, `${name}: mallory`]
        expect(statuses(await send(asking.port, 'GET /v3/a HTTP/1.1', ...fields))).toEqual([200])
        const { headers } = data.seen.at(-1)!
        expect(headers['x-sluice-client']).toBe('ann')
        expect(JSON.stringify(headers)).not.toContain('mallory')
        expect(headers.connection ?? '').not.toMatch(/sluice/i)
      }
    },
  )

  it('drops the other fields with underscores that a backend may read as its own', async () => {
    const fields = [
      'X_Forwarded_For: 1.2.3.4',
      'X-Forwarded_For: 1.2.3.4',
      'Client_Cert: a',
      'X_RateLimit-Limit: 1',
    ]
    expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST, ...fields))).toEqual([200])
    expect(Object.keys(data.seen.at(-1)!.headers).filter((name) => name.includes('_'))).toEqual([])
  })

  it.each(['inner.example.com, api.example.com', 'inner.example.com,', ',inner.example.com'])(
    'refuses the Host %s',
    async (host) => {
      for (const path of ['/v3/a', '/open/a']) {
        const text = await send(asking.port, `GET ${path} HTTP/1.1`, `Host: ${host}`)
        expect(statuses(text)).toEqual([400])
      }
      expect(data.seen).toEqual([])
    },
  )

  it.each(['api.example.com', 'inner.example.com', 'api.example.com:81'])(
    'forwards a target with the host %s only as the gateway understood it, or refuses it',
    async (host) => {
      const text = await send(asking.port, `GET http://${host}/open/a HTTP/1.1`, HOST)
      if (statuses(text)[0] === 400) expect(data.seen).toEqual([])
      else expect(data.seen.map(({ url, headers }) => [url, headers.host])).toEqual([['/open/a', host]])
    },
  )

  it('does not ask about one host and forward to another', async () => {
    const ask = (target: string, host: string) => send(asking.port, `GET ${target} HTTP/1.1`, `Host: ${host}`)
    await ask('http://api.example.com/v3/a', 'inner.example.com')
    expect(data.seen).toEqual([])
    await ask('http://inner.example.com/v3/a', 'api.example.com')
    for (const { headers } of data.seen) expect(headers.host).toBe('inner.example.com')
  })

  it('drops what the caller claims about its connection', async () => {
    const names = [
      'Client-Cert',
      'Forwarded',
      'X-Real-IP',
      'X-Forwarded-Host',
      'X-Forwarded-Port',
      'X-Forwarded-For',
    ]
    const fields = names.map((name) => `${name}: forged`)
    expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST, ...fields))).toEqual([200])
    expect(JSON.stringify(data.seen.at(-1)!.headers)).not.toContain('forged')
  })

  it.each(['GET', 'HEAD', 'DELETE', 'OPTIONS'])(
    'refuses a %s with a body, which a backend may ignore',
    async (method) => {
      const line = `${method} /open/a HTTP/1.1`
      expect(statuses(await send(asking.port, line, HOST, 'Content-Length: 0', 'Connection: close'))).toEqual(
        [200],
      )
      const text = await send(asking.port, line, HOST, 'Content-Length: 3', 'Connection: close', '', 'abc')
      expect(statuses(text)).toEqual([400])
      expect(data.seen).toHaveLength(1)
    },
  )

  it.each(['X.Sluice.Client', 'X~Sluice~Client'])('drops %s', async (name) => {
    await send(asking.port, 'GET /open/a HTTP/1.1', HOST, `${name}: mallory`)
    expect(JSON.stringify(data.seen)).not.toContain('mallory')
  })

  it('does not obey a backend that names another target', async () => {
    const { text } = await raw(asking.port, `GET /open/accel HTTP/1.1\r\n${HOST}\r\n\r\n`, answered)
    expect(statuses(text)).toEqual([200])
    expect(data.seen.map(({ url }) => url)).toEqual(['/open/accel'])
  })

  it('shows only the limit of the gateway if the backend has rate-limit fields, too', async () => {
    const fields = [HOST, `Authorization: Bearer ${await token('eve')}`, 'X-Limited: yes']
    const text = await send(asking.port, 'GET /v3/a HTTP/1.1', ...fields)
    expect(text.match(/^x-ratelimit-limit: .*$/gim)).toEqual([expect.stringMatching(/: 1000$/)])
    expect(text).not.toContain('of the backend')
  })

  it.each(['websocket', 'h2c'])(
    'forwards no upgrade to %s, whose bytes would pass unasked',
    async (protocol) => {
      const key = ['Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']
      const upgrade = [
        'Connection: Upgrade, HTTP2-Settings',
        `Upgrade: ${protocol}`,
        'HTTP2-Settings: AAMAAABkAAQ',
      ]
      expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST, ...upgrade, ...key))).toEqual([
        200,
      ])
      const { headers } = data.seen.at(-1)!
      expect(headers).not.toHaveProperty('upgrade')
      expect(headers).not.toHaveProperty('http2-settings')
      expect(headers.connection ?? '').not.toMatch(/upgrade/i)
    },
  )
})

/** Sends 30 refused requests to a proxy. Returns the number of connections on which it asked. */
async function connectionsOf(from: AskingProxy): Promise<number> {
  const asking = await start(from)
  let connections = 0
  const count = (message: unknown) => {
    if ((message as { socket: Socket }).socket.localPort === asking.gateway.askPort) connections++
  }
  subscribe('net.server.socket', count)
  for (let i = 0; i < 30; i++)
    expect(statuses(await send(asking.port, 'GET /other HTTP/1.1', HOST))).toEqual([404])
  unsubscribe('net.server.socket', count)
  return connections
}

describe('nginx that asks', () => {
  it('keeps its connections to the gateway when requests are refused', async () => {
    // One for each worker process.
    expect(await connectionsOf('nginx')).toBeLessThanOrEqual(cpus().length)
  })
})

describe('Caddy that asks', () => {
  it('asks on a new connection each time, as it may keep one to the backend among those to the gateway', async () => {
    expect(await connectionsOf('caddy')).toBe(30)
  })
})

describe('HAProxy that asks', () => {
  it('refuses more fields than its client can send, and keeps running', async () => {
    const asking = await start('haproxy')
    const fields = (count: number) => Array.from({ length: count }, (_, i) => `X-Field-${i}: a`)
    expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST, ...fields(75)))).toEqual([200])
    for (const count of [81, 97, 98, 99, 100, 101, 120])
      expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST, ...fields(count)))[0]).toBeOneOf([
        400, 431,
      ])
    expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST))).toEqual([200])
  })

  it('HAProxy that asks does not use HTTP/2 without TLS', async () => {
    const asking = await start('haproxy')
    const { text } = await raw(asking.port, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', answered)
    expect(text).toMatch(/^HTTP\/1\.[01] 4\d\d /)
  })

  it('refuses every request if the Lua program fails', async () => {
    const before = data.seen.length
    const asking = await start('haproxy', (name, text) =>
      name === 'sluice.lua' ? text.replace('local headers = {}', 'error("broken")') : text,
    )
    expect(statuses(await send(asking.port, 'GET /open/a HTTP/1.1', HOST))).toEqual([503])
    expect(data.seen.length).toBe(before)
  })
})
