import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage } from 'node:http'
import { type ClientOptions, WebSocket, WebSocketServer } from 'ws'
import { closeLater } from './closing.ts'
import { listenLocally, type LocalServer } from './local-server.ts'
import { until } from './wait.ts'

/** A backend with WebSockets, which repeats each message; an ordinary request gets the target. */
export interface SocketBackend extends LocalServer {
  /** The handshakes in their order, and the open sockets. */
  readonly handshakes: IncomingMessage[]
  readonly open: Set<WebSocket>
}

/** Starts a backend with WebSockets. */
export async function startSocketBackend(): Promise<SocketBackend> {
  const server = createServer((request, response) => void response.end(request.url))
  const handshakes: IncomingMessage[] = []
  const sockets = new WebSocketServer({ server })
  sockets.on('connection', (socket, request) => {
    handshakes.push(request)
    socket.on('error', () => {})
    socket.on('message', (data, isBinary) => socket.send(data as Buffer, { binary: isBinary }))
  })
  return { ...(await listenLocally(server)), handshakes, open: sockets.clients }
}

/** A client that the package `ws` connects. */
export interface Client {
  readonly socket: WebSocket
  readonly messages: string[]
  /** The status of a response that is not 101. */
  readonly refused: { readonly status: number; readonly headers: IncomingMessage['headers'] } | undefined
  /** The code of the close: 1006 if the socket ended without a close frame; undefined while it is open. */
  readonly closeCode: number | undefined
  /** Sends a text, and waits until it comes back. */
  echo(text: string): Promise<void>
}

/** Opens a WebSocket at a port; resolves when it is open or refused. */
export async function openSocket(
  port: number,
  path: string,
  token?: string,
  options: ClientOptions = {},
): Promise<Client> {
  const headers = { ...(token !== undefined && { Authorization: `Bearer ${token}` }), ...options.headers }
  const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, { ...options, headers })
  closeLater(() => socket.terminate())
  const messages: string[] = []
  const state: { refused?: Client['refused']; closeCode?: number } = {}
  socket.on('error', () => {})
  socket.on('message', (data) => messages.push((data as Buffer).toString()))
  socket.on('close', (code) => (state.closeCode = code))
  socket.on('unexpected-response', (_, { statusCode, headers: fields }) => {
    state.refused = { status: statusCode!, headers: fields }
    socket.terminate()
  })
  await until('the WebSocket is open, or refused', () => socket.readyState !== WebSocket.CONNECTING)
  return {
    socket,
    messages,
    get refused() {
      return state.refused
    },
    get closeCode() {
      return state.closeCode
    },
    async echo(text) {
      const before = messages.length
      socket.send(text)
      await until('the text comes back', () => messages.slice(before).includes(text))
    },
  }
}

/** The head of a handshake, whose fields a test may replace. */
export function handshake(
  path: string,
  fields: Record<string, string | undefined> = {},
  line = `GET ${path} HTTP/1.1`,
) {
  const all: Record<string, string | undefined> = {
    ...{ Host: 'a', Connection: 'Upgrade', Upgrade: 'websocket' },
    ...{ 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' },
    ...fields,
  }
  const lines = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}: ${value}`,
  )
  return `${[line, ...lines].join('\r\n')}\r\n\r\n`
}

/** The 101 of a backend that accepts the handshake in `head`. */
export function accepting(head: string, more = ''): string {
  const key = /^sec-websocket-key: (.*)\r$/im.exec(head)?.[1] ?? ''
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
  const fields = `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n${more}`
  return `HTTP/1.1 101 Switching Protocols\r\n${fields}\r\n`
}
