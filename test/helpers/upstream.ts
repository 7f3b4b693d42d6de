import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createServer as createTcpServer, type Socket } from 'node:net'
import { listenLocally, type LocalServer } from './local-server.ts'

/** One request as the upstream received it. */
export interface Seen {
  readonly at: number
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: readonly string[]
  readonly body: Buffer
}

export interface TestUpstream extends LocalServer {
  /** Complete requests, in the order in which they ended. */
  readonly seen: Seen[]
  readonly server: Server
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void

/** Starts a real HTTP backend that records its requests. By default it responds with 200 and a small JSON body. */
export async function startUpstream(answer?: Answer, listener?: RequestListener): Promise<TestUpstream> {
  const seen: Seen[] = []
  const server = createServer(
    { keepAliveTimeout: 30_000 },
    listener ??
      ((request, response) => {
        const chunks: Buffer[] = []
        request.on('data', (chunk: Buffer) => chunks.push(chunk))
        request.on('end', () => {
          const body = Buffer.concat(chunks)
          seen.push({
            at: performance.now(),
            method: request.method ?? '',
            url: request.url ?? '',
            headers: request.headers,
            rawHeaders: request.rawHeaders,
            body,
          })
          if (answer) answer(request, response, body)
          else response.writeHead(200, { 'content-type': 'application/json' }).end('{"data":[]}')
        })
        request.on('error', () => {})
      }),
  )
  return { ...(await listenLocally(server)), seen, server }
}

/** Starts a backend without HTTP: `talk` sends any bytes to each connection. */
export async function startRawUpstream(
  talk: (socket: Socket, first: Buffer, connection: number) => void,
): Promise<LocalServer> {
  let connections = 0
  const server = createTcpServer((socket) => {
    const connection = ++connections
    socket.on('error', () => {})
    socket.on('data', (data: Buffer) => talk(socket, data, connection))
  })
  return await listenLocally(server)
}
