import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { redisAddress, type RedisCredentials, type RedisTopology, SENTINEL_PORT } from './options.ts'
import { StoreConfigError } from './topology.ts'

/** How long it may take to find out what is spoken at a port. */
const LOOK_MS = 1000

/**
 * What to write instead where Redis, the first of the cluster's nodes or of the sentinels, speaks TLS and is not asked to, or
 * the other way round, and where the only one is no Redis. Tries both, and is silent unless one failed and the other did not,
 * or something else answered: from the failure alone, nobody can tell it from an outage.
 */
export async function wrongWire(
  topology: RedisTopology,
  credentials: RedisCredentials,
): Promise<StoreConfigError | undefined> {
  const [urls, port] =
    'url' in topology
      ? [[topology.url]]
      : 'cluster' in topology
        ? [topology.cluster]
        : [topology.sentinels, SENTINEL_PORT]
  const [url] = urls as [string]
  const { host, port: at, tls } = redisAddress(url, credentials, port)
  if (host === undefined || at === undefined) return undefined
  const [answer, encrypted] = await Promise.all([plainAnswer(host, at), speaksTls(host, at)])
  const plain = /^(?:\+PONG|-[A-Z]+ )/.test(answer)
  // Of several, the others may be right.
  if (isForeign(answer) && !encrypted && urls.length === 1) {
    return new StoreConfigError(
      `something other than Redis answers at ${host}:${at}; write the address of Redis in store.redis.`,
    )
  }
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

/** What is answered to PING, not encrypted; nothing where nobody answers. */
function plainAnswer(host: string, port: number): Promise<string> {
  return settled(connect(port, host), '', (socket, done) => {
    socket.once('connect', () => socket.write('PING\r\n'))
    // Of one that asks for a password first, it is an error.
    socket.once('data', (bytes) => done(bytes.toString('latin1')))
    socket.once('error', () => done(''))
  })
}

/** Does it begin as the words of another protocol do? No message of RESP does, nor an alert of TLS. */
function isForeign(answer: string): boolean {
  return /^[A-Za-z0-9<{]/.test(answer)
}

function speaksTls(host: string, port: number): Promise<boolean> {
  // Nothing is said over it, so it need not be known who answers.
  return settled(connectTls({ port, host, rejectUnauthorized: false }), false, (socket, done) => {
    socket.once('secureConnect', () => done(true))
    // One that asks for a certificate first answers with an alert.
    socket.once('error', ({ code = '' }: NodeJS.ErrnoException) => done(/^ERR_SSL_.*ALERT/.test(code)))
  })
}

async function settled<S extends Socket, T>(
  socket: S,
  otherwise: T,
  look: (socket: S, done: (found: T) => void) => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const found = await new Promise<T>((resolve) => {
    look(socket, resolve)
    socket.once('close', () => resolve(otherwise))
    timer = setTimeout(resolve, LOOK_MS, otherwise)
  })
  clearTimeout(timer)
  socket.on('error', () => {})
  socket.destroy()
  return found
}
