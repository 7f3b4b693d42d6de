import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import {
  createServer as createTcpServer,
  type AddressInfo,
  type Server as TcpServer,
  type Socket,
} from 'node:net'

/** One request as the upstream received it. */
export interface Seen {
  readonly at: number
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: readonly string[]
  readonly body: Buffer
}

export interface TestUpstream {
  readonly url: string
  readonly port: number
  /** Complete requests, in the order in which they ended. */
  readonly seen: Seen[]
  readonly server: Server
  /** Number of open sockets. */
  sockets(): number
  close(): Promise<void>
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void

/** Starts a real HTTP backend that records its requests. By default it responds with 200 and a small JSON body. */
export async function startUpstream(answer?: Answer, listener?: RequestListener): Promise<TestUpstream> {
  const seen: Seen[] = []
  const open = new Set<Socket>()
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
  server.on('connection', (socket) => {
    open.add(socket)
    socket.on('close', () => open.delete(socket))
  })
  const port = await listen(server)
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    seen,
    server,
    sockets: () => open.size,
    close: () => close(server, open),
  }
}

export interface RawUpstream {
  readonly url: string
  readonly port: number
  sockets(): number
  close(): Promise<void>
}

/** Starts a backend without HTTP: `talk` sends any bytes to each connection. */
export async function startRawUpstream(
  talk: (socket: Socket, first: Buffer, connection: number) => void,
): Promise<RawUpstream> {
  const open = new Set<Socket>()
  let connections = 0
  const server = createTcpServer((socket) => {
    open.add(socket)
    const connection = ++connections
    socket.on('close', () => open.delete(socket))
    socket.on('error', () => {})
    socket.on('data', (data: Buffer) => talk(socket, data, connection))
  })
  const port = await listen(server)
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    sockets: () => open.size,
    close: () => close(server, open),
  }
}

function listen(server: Server | TcpServer): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
}

function close(server: Server | TcpServer, open: Set<Socket>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    for (const socket of open) socket.destroy()
  })
}
