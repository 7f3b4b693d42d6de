import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { closeLater } from './closing.ts'

/** A backend that a test can break during requests, and restore. */
export interface FragileUpstream {
  readonly url: string
  /** Closes open connections, and refuses new connections. */
  kill(): Promise<void>
  /** Listens again at the same address. */
  start(): Promise<void>
  /** Accepts connections and requests, but does not answer. */
  hang(): void
  /** Answers all pending requests. */
  resume(): void
  /** Resets all open connections. */
  reset(): void
  close(): Promise<void>
}

/** Starts a backend that answers every request with 100 kB in two parts, so that a break also truncates responses. */
export async function startFragileUpstream(): Promise<FragileUpstream> {
  const part = Buffer.alloc(50_000)
  const open = new Set<Socket>()
  const held = new Set<ServerResponse>()
  let hung = false
  const answer = (response: ServerResponse): void => {
    response.writeHead(200, { 'Content-Length': 2 * part.length }).write(part)
    setTimeout(() => response.end(part), Math.random() * 10)
  }
  const server = createServer({ keepAliveTimeout: 5000 }, (request, response) => {
    request.on('error', () => {}).resume()
    response.on('error', () => {}).on('close', () => held.delete(response))
    request.on('end', () => void (hung ? held.add(response) : answer(response)))
  })
  server.on('connection', (socket) => {
    open.add(socket)
    socket.on('error', () => {}).on('close', () => open.delete(socket))
  })
  let port = 0
  const reset = (): void => {
    for (const socket of open) socket.resetAndDestroy()
  }
  const start = (): Promise<void> =>
    new Promise((resolve) => {
      server.listen(port, '127.0.0.1', () => {
        ;({ port } = server.address() as AddressInfo)
        resolve()
      })
    })
  const kill = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve))
    reset()
    await closed
  }
  await start()
  closeLater(kill)
  return {
    url: `http://127.0.0.1:${port}`,
    kill,
    start,
    hang: () => void (hung = true),
    resume() {
      hung = false
      for (const response of held) answer(response)
      held.clear()
    },
    reset,
    close: kill,
  }
}
