import { createServer } from 'node:http'
import type { Page } from 'playwright-core'
import { Server } from 'socket.io'
import { beforeAll, describe, expect, it } from 'vitest'
import { startBrowser } from '../helpers/browser.ts'
import { closeLater } from '../helpers/closing.ts'
import { startLogging } from '../helpers/gateway.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { startSocketBackend } from '../helpers/websocket.ts'
import { until } from '../helpers/wait.ts'

/** WebSockets of a page in Chromium, and of a Socket.IO server, which also answers requests at the same path. */

const plain = await startSocketBackend()
const http = createServer(
  (_, response) => void response.setHeader('content-type', 'text/html').end('<!doctype html>'),
)
const io = new Server(http)
io.on('connection', (socket) => {
  socket.on('message', (text: string) => socket.emit('message', `${socket.conn.transport.name}: ${text}`))
})
const data = await listenLocally(http)
const gateway = await startLogging({
  data: data.url,
  identity: plain.url,
  limits: {
    sockets: { per: ['ip'], limit: 2, window: '1h' },
    polls: { per: ['ip'], limit: 1000, window: '1h' },
  },
  routes: [
    {
      match: 'GET /ws',
      upstream: 'identity',
      authenticate: 'none',
      limits: ['sockets'],
      upgrade: 'websocket',
    },
    {
      match: '/socket.io/*',
      upstream: 'data',
      authenticate: 'none',
      limits: ['polls'],
      upgrade: 'websocket',
    },
    { match: '/*', upstream: 'data', authenticate: 'none' },
  ],
})
const url = `http://127.0.0.1:${gateway.port}`
const lines = (path: string) => gateway.lines().filter((line) => line['path'] === path)

/** The client of Socket.IO, as far as the page uses it. */
interface Client {
  on(event: string, act: (text: string) => void): void
  send(text: string): void
  close(): void
  readonly io: { readonly engine: { readonly transport: { readonly name: string } } | undefined }
}
interface Held {
  readonly client: Client
  readonly got: readonly string[]
}

let page: Page
beforeAll(async () => {
  const browser = await startBrowser()
  page = await browser.newPage()
  closeLater(() => io.close())
  await page.goto(url)
})

/** Opens a WebSocket in the page, sends a text, and closes it; returns what the page saw. */
const echo = (path: string, text: string) =>
  page.evaluate(
    ([target, sent]) =>
      new Promise<string>((resolve) => {
        const socket = new WebSocket(target)
        socket.addEventListener('open', () => socket.send(sent))
        socket.addEventListener('message', (event) => {
          resolve(String(event.data))
          socket.close()
        })
        socket.addEventListener('close', ({ code }) => resolve(`closed with ${code}`))
      }),
    [url.replace('http', 'ws') + path, text] as const,
  )

describe('a page', () => {
  it('opens WebSockets until its limit, and sees one that is refused as closed', async () => {
    expect(await echo('/ws', 'from a page')).toBe('from a page')
    const long = 'y'.repeat(100_000)
    // Chromium compresses messages, if the backend accepts that.
    expect(await echo('/ws', long)).toBe(long)
    expect(await echo('/ws', 'over')).toBe('closed with 1006')
    await until('all are logged', () => lines('/ws').length === 3)
    expect(lines('/ws').filter(({ status }) => status === 101)).toHaveLength(2)
    expect(lines('/ws').some(({ status }) => status === 429)).toBe(true)
    expect(await echo('/elsewhere', 'x')).toBe('closed with 1006')
    await until('it is logged', () => lines('/elsewhere').length > 0)
    expect(lines('/elsewhere')[0]).toMatchObject({ status: 501 })
  })

  it('talks with Socket.IO, first by requests and then by a WebSocket', async () => {
    await page.addScriptTag({ url: `${url}/socket.io/socket.io.js` })
    // Its client begins with requests, and changes to a WebSocket that it has tried meanwhile.
    await page.evaluate(() => {
      const { io: connect } = globalThis as unknown as { io(): Client }
      const client = connect()
      const got: string[] = []
      client.on('message', (text) => got.push(text))
      Object.assign(globalThis, { client, got })
    })
    await page.waitForFunction(
      () => (globalThis as unknown as Held).client.io.engine?.transport.name === 'websocket',
    )
    await page.evaluate(() => (globalThis as unknown as Held).client.send('hello'))
    await page.waitForFunction(() => (globalThis as unknown as Held).got.length > 0)
    const answers = await page.evaluate(() => (globalThis as unknown as Held).got)
    expect(answers).toEqual(['websocket: hello'])
    await page.evaluate(() => (globalThis as unknown as Held).client.close())
    const logged = (method: string, status: number) =>
      gateway
        .lines()
        .some(
          (line) =>
            line['route'] === '/socket.io/*' && line['method'] === method && line['status'] === status,
        )
    await until('its end is logged', () => logged('GET', 101))
    expect([logged('GET', 200), logged('POST', 200)]).toEqual([true, true])
  })
})
