import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { redisAddress, type RedisCredentials, type RedisTopology } from './redis-options.ts'
import { StoreConfigError } from './redis-topology.ts'

/** How long it may take to find out what is spoken at a port. */
const LOOK_MS = 1000

/**
 * What to write instead where Redis, the first of the cluster's nodes or of the sentinels, speaks TLS and is not asked to, or
 * the other way round. Tries both, and is silent unless one failed and the other did not: from the failure alone, nobody
 * can tell it from an outage.
 */
export async function wrongWire(
  topology: RedisTopology,
  credentials: RedisCredentials,
): Promise<StoreConfigError | undefined> {
  const [url, port] =
    'url' in topology
      ? [topology.url]
      : 'cluster' in topology
        ? [topology.cluster[0]!]
        : [topology.sentinels[0]!, 26_379]
  const { host, port: at, tls } = redisAddress(url, credentials, port)
  if (host === undefined || at === undefined) return undefined
  const [plain, encrypted] = await Promise.all([speaksRedis(host, at), speaksTls(host, at)])
  if (plain === encrypted) return undefined
  if (encrypted && tls === undefined) {
    return new StoreConfigError(
      `TLS is spoken at ${host}:${at}; write rediss:// in place of redis://, or set store.redis.tls.`,
    )
  }
  if (plain && tls !== undefined) {
    return new StoreConfigError(
      `Redis does not speak TLS at ${host}:${at}; write redis:// in place of rediss://, and no store.redis.tls.`,
    )
  }
  return undefined
}

function speaksRedis(host: string, port: number): Promise<boolean> {
  return settled(connect(port, host), (socket, done) => {
    socket.once('connect', () => socket.write('PING\r\n'))
    // Of one that asks for a password first, it is an error.
    socket.once('data', (bytes) => done(/^(?:\+PONG|-[A-Z]+ )/.test(bytes.toString('latin1'))))
    socket.once('error', () => done(false))
  })
}

function speaksTls(host: string, port: number): Promise<boolean> {
  // Nothing is said over it, so it need not be known who answers.
  return settled(connectTls({ port, host, rejectUnauthorized: false }), (socket, done) => {
    socket.once('secureConnect', () => done(true))
    // One that asks for a certificate first answers with an alert.
    socket.once('error', ({ code = '' }: NodeJS.ErrnoException) => done(/^ERR_SSL_.*ALERT/.test(code)))
  })
}

async function settled<S extends Socket>(
  socket: S,
  look: (socket: S, done: (speaks: boolean) => void) => void,
): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const speaks = await new Promise<boolean>((resolve) => {
    look(socket, resolve)
    socket.once('close', () => resolve(false))
    timer = setTimeout(resolve, LOOK_MS, false)
  })
  clearTimeout(timer)
  socket.on('error', () => {})
  socket.destroy()
  return speaks
}
