import { connect, createServer, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { closeLater } from './closing.ts'

/** A TLS address before a Redis that, as Redis, does one thing at a time: handshakes and commands wait for each other. */
export interface SlowTls {
  readonly url: string
  /** Handshakes that were paid for so far, also those whose client had left. */
  handshakes(): number
  /** Does nothing for a time. */
  stall(ms: number): void
  close(): Promise<void>
}

/** Starts it before the socket file of a Redis; each handshake takes `handshakeMs`. */
export async function startSlowTls(
  redisPath: string,
  certificate: { readonly cert: string; readonly key: string },
  handshakeMs: number,
): Promise<SlowTls> {
  let handshakes = 0
  const sockets = new Set<Socket>()
  const tasks: { readonly ms: number; readonly run: () => void }[] = []
  let isBusy = false

  function work(): void {
    for (let task = tasks.shift(); task !== undefined; task = tasks.shift()) {
      task.run()
      if (task.ms === 0) continue
      isBusy = true
      setTimeout(() => {
        isBusy = false
        work()
      }, task.ms)
      return
    }
  }
  function add(ms: number, run: () => void): void {
    tasks.push({ ms, run })
    if (!isBusy) work()
  }

  const tls = createTlsServer(certificate, (client) => {
    const redis = connect(redisPath)
    sockets.add(redis)
    client.on('error', () => {}).on('close', () => redis.destroy())
    redis
      .on('error', () => {})
      .on('close', () => {
        sockets.delete(redis)
        client.destroy()
      })
    client.on('data', (chunk) => add(0, () => redis.write(chunk)))
    redis.pipe(client)
  }).on('tlsClientError', () => {})
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    add(handshakeMs, () => {
      handshakes++
      tls.emit('connection', socket)
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', 1000, resolve)
  })
  async function close(): Promise<void> {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  }
  closeLater(close)
  return {
    url: `rediss://127.0.0.1:${(server.address() as { port: number }).port}`,
    handshakes: () => handshakes,
    stall: (ms) => add(ms, () => {}),
    close,
  }
}
