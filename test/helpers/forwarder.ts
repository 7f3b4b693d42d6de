import { connect, createServer, type Socket } from 'node:net'
import { closeLater } from './closing.ts'

/** A TCP address that leads to one server or another, as a name does in a failover. */
export interface Forwarder {
  readonly url: string
  /** Connections made so far. */
  connections(): number
  /** Leads new connections to another local port; those that are open stay. */
  leadTo(port: number): void
  close(): Promise<void>
}

/** Starts a forwarder that leads to a local port. */
export async function startForwarder(first: number): Promise<Forwarder> {
  let port = first
  let connections = 0
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    connections++
    const other = connect(port, '127.0.0.1')
    for (const [from, to] of [
      [socket, other],
      [other, socket],
    ] as const) {
      sockets.add(from)
      from
        .on('error', () => {})
        .on('close', () => {
          sockets.delete(from)
          to.destroy()
        })
      from.pipe(to)
    }
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  async function close(): Promise<void> {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  }
  closeLater(close)
  return {
    url: `redis://127.0.0.1:${(server.address() as { port: number }).port}`,
    connections: () => connections,
    leadTo: (next) => void (port = next),
    close,
  }
}
