import type { AddressInfo, Server, Socket } from 'node:net'
import { closeLater } from './closing.ts'

export interface LocalServer {
  readonly port: number
  /** `http:`, also for a server of another protocol. */
  readonly url: string
  /** Returns the number of open sockets. */
  sockets(): number
  /** Closes the server and its sockets. */
  close(): Promise<void>
}

/** Lets a server listen on a free port of 127.0.0.1, until the tests close it. */
export async function listenLocally(server: Server): Promise<LocalServer> {
  const open = new Set<Socket>()
  server.on('connection', (socket) => {
    open.add(socket)
    socket.on('close', () => open.delete(socket))
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve())
      for (const socket of open) socket.destroy()
    })
  closeLater(close)
  return { port, url: `http://127.0.0.1:${port}`, sockets: () => open.size, close }
}
