import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { closeLater } from './closing.ts'
import { freePort } from './ports.ts'
import { makeCertificate } from './self-signed.ts'
import { until } from './wait.ts'

/** A real redis-server. */
export interface SharedRedis {
  readonly url: string
  /** The port; 0 if it listens only on a socket file. */
  readonly port: number
  /** Sends one command over the helper's own connection. */
  command(...args: (string | number)[]): Promise<unknown>
}

/** A real redis-server that a test can break. */
export interface RedisServer extends SharedRedis {
  /** Sends SIGSTOP: it accepts connections and bytes, but does not answer. */
  freeze(): void
  thaw(): void
  /** Kills it with SIGKILL. */
  kill(): Promise<void>
  /** Starts an empty server at the same address. */
  start(): Promise<void>
  /** Kills it and removes its files. */
  close(): Promise<void>
}

export interface RedisServerOptions {
  /** Listens on a free TCP port, too, as clusters, sentinels and replicas require. */
  readonly tcp?: boolean
  /** Additional arguments of redis-server, such as `--requirepass`. */
  readonly args?: readonly string[]
  readonly password?: string
  /** The TCP port accepts only TLS, with the certificate of `REDIS_CERT`. */
  readonly tls?: boolean
}

/** The certificate of localhost and 127.0.0.1 that servers with TLS show; it is its own authority. */
export const REDIS_CERT = makeCertificate('localhost', 86_400_000, '127.0.0.1')

/** Returns the paths of files with the certificate and its key, in a folder of this process. */
let files: { readonly cert: string; readonly key: string } | undefined
function tlsFiles() {
  if (files !== undefined) return files
  const folder = mkdtempSync(join(tmpdir(), 'sluice-redis-tls-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  writeFileSync(cert, REDIS_CERT.cert)
  writeFileSync(key, REDIS_CERT.key, { mode: 0o600 })
  return (files = { cert, key })
}

/** Returns the arguments with which a redis-server or sentinel listens at a port. */
function listening(port: number, tls: boolean): readonly string[] {
  return tls ? listeningTwice(0, port, true) : ['--port', String(port)]
}

/** Returns the arguments with which it listens at a port without TLS, 0 for none, and at one with it. */
function listeningTwice(plainPort: number, tlsPort: number, areServersSecure: boolean): readonly string[] {
  const { cert, key } = tlsFiles()
  return [
    ...['--port', String(plainPort), '--tls-port', String(tlsPort), '--tls-auth-clients', 'no'],
    ...['--tls-replication', areServersSecure ? 'yes' : 'no'],
    ...['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', cert],
  ]
}

/** Returns how many counters Redis has read: a charge reads each of its keys by GETRANGE, which a gateway's registration never uses. */
export async function readsOfCounters(redis: SharedRedis): Promise<number> {
  const stats = String(await redis.command('INFO', 'commandstats'))
  return Number(/^cmdstat_getrange:calls=(\d+)/m.exec(stats)?.[1] ?? 0)
}

export const urlOf = (port: number, tls: boolean) => `${tls ? 'rediss' : 'redis'}://127.0.0.1:${port}`

const running = new Set<ChildProcess>()
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

/** Starts a redis-server on a socket file in a new directory; resolves when it answers. */
export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const { tcp = false, args = [], password, tls = false } = options
  const dir = mkdtempSync(join(tmpdir(), 'sluice-redis-'))
  const path = join(dir, 'redis.sock')
  const port = tcp ? await freePort() : 0
  const all = [
    ...listening(port, tls),
    `--bind 127.0.0.1 --unixsocket ${path} --dir ${dir} --appendonly no --loglevel warning --maxclients 500`.split(
      ' ',
    ),
    ['--save', ''],
    password === undefined ? [] : ['--requirepass', password, '--masterauth', password],
    args,
  ].flat()
  let child: ChildProcess | undefined
  const { command, disconnect } = commander({ path, ...(password && { password }) })

  async function kill(): Promise<void> {
    disconnect()
    const dying = child
    child = undefined
    if (dying === undefined) return
    const gone = new Promise((resolve) => dying.once('exit', resolve))
    dying.kill('SIGKILL')
    await gone
  }
  async function start(): Promise<void> {
    let starting = (child = launch('redis-server', all))
    await until('redis-server answers', async () => {
      if (starting.exitCode !== null) {
        // The system may have assigned the port to another connection in the meantime.
        if (!starting.said().includes('Address already in use')) {
          throw new Error(`redis-server ended: ${starting.said()}`)
        }
        await new Promise((resolve) => setTimeout(resolve, 100))
        child = starting = launch('redis-server', all)
      }
      try {
        return (await command('PING')) === 'PONG'
      } catch {
        disconnect()
        return false
      }
    })
  }

  async function close(): Promise<void> {
    await kill()
    rmSync(dir, { recursive: true, force: true })
  }
  closeLater(close)
  await start()
  return {
    url: tcp ? urlOf(port, tls) : path,
    port,
    command,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    kill,
    start,
    close,
  }
}

/** Returns a function that sends commands, over a connection that is opened on demand. */
export function commander(
  address:
    | { readonly path: string; readonly password?: string }
    | { readonly host: string; readonly port: number },
): {
  command(...args: (string | number)[]): Promise<unknown>
  disconnect(): void
} {
  let client: Redis | undefined
  function disconnect(): void {
    client?.disconnect()
    client = undefined
  }
  return {
    disconnect,
    async command(...[name, ...rest]) {
      if (client === undefined) {
        const once = { lazyConnect: true, enableReadyCheck: false, retryStrategy: null, protocol: 2 } as const
        client = new Redis({ ...address, ...once })
        client.on('error', () => {})
      }
      try {
        return await client.call(String(name), ...rest)
      } catch (error) {
        // A server that changes its role closes its connections.
        if (client?.status !== 'ready') disconnect()
        throw error
      }
    },
  }
}

/** A real Redis Cluster; `nodes` are its masters, then its replicas. */
export interface SharedCluster<Node extends SharedRedis = SharedRedis> {
  readonly urls: readonly string[]
  readonly nodes: readonly Node[]
  /** Returns the node that is master for a hash slot now. */
  masterOf(slot: number): Promise<Node>
}

export interface RedisCluster extends SharedCluster<RedisServer> {
  /** Empties every master. */
  flush(): Promise<void>
  close(): Promise<void>
}

/** Returns a cluster of these nodes. */
export function clusterOf<Node extends SharedRedis>(nodes: readonly Node[]): SharedCluster<Node> {
  return {
    urls: nodes.map(({ url }) => url),
    nodes,
    async masterOf(slot) {
      for (const node of nodes) {
        const ranges = (await node.command('CLUSTER', 'SLOTS').catch(() => [])) as [
          number,
          number,
          [string, number],
        ][]
        const owner = ranges.find(([from, to]) => from <= slot && slot <= to)
        if (owner) return nodes.find(({ port }) => port === owner[2][1])!
      }
      throw new Error('no node answers')
    },
  }
}

const SLOTS = 16_384

/** The credentials that a cluster or sentinels require. */
export type RedisGuard = Pick<RedisServerOptions, 'password' | 'tls'>

/** Starts a cluster of `masters` with `replicasEach`; resolves when all slots are served. */
export async function startCluster(
  masters = 3,
  replicasEach = 0,
  guard: RedisGuard = {},
): Promise<RedisCluster> {
  const count = masters * (1 + replicasEach)
  const busPorts = await Promise.all(Array.from({ length: count }, freePort))
  const nodes = await Promise.all(
    busPorts.map((busPort) =>
      startRedis({
        ...guard,
        tcp: true,
        args: [
          guard.tls ? ['--tls-cluster', 'yes'] : [],
          `--cluster-enabled yes --cluster-announce-ip 127.0.0.1 --cluster-port ${busPort} --cluster-node-timeout 1000`.split(
            ' ',
          ),
          '--cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0'.split(' '),
        ].flat(),
      }),
    ),
  )
  const ids = await Promise.all(nodes.map(async (node) => String(await node.command('CLUSTER', 'MYID'))))
  for (const [i, node] of nodes.entries()) {
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    if (i > 0) await nodes[0]!.command('CLUSTER', 'MEET', '127.0.0.1', node.port, busPorts[i]!)
  }
  for (let i = 0; i < masters; i++) {
    const from = Math.floor((SLOTS * i) / masters)
    const to = Math.floor((SLOTS * (i + 1)) / masters) - 1
    await nodes[i]!.command('CLUSTER', 'ADDSLOTSRANGE', from, to)
  }
  await until('every node knows the others', async () =>
    (await infos(nodes)).every((info) => info.includes(`cluster_known_nodes:${count}`)),
  )
  // Nodes whose ids are not known yet are counted, too.
  for (let i = masters; i < count; i++) {
    const replicate = () => nodes[i]!.command('CLUSTER', 'REPLICATE', ids[i % masters]!)
    await until('the replica knows its master', () => replicate().then(Boolean, () => false))
  }
  await until('the cluster is ok', async () =>
    (await infos(nodes)).every((info) => info.includes('cluster_state:ok')),
  )
  if (replicasEach > 0) {
    await until('the replicas follow', async () => {
      const said = await Promise.all(nodes.slice(masters).map((node) => node.command('INFO', 'replication')))
      return said.every((info) => String(info).includes('master_link_status:up'))
    })
  }
  return {
    ...clusterOf(nodes),
    async flush() {
      for (const node of nodes) await node.command('FLUSHALL').catch(() => {})
    },
    close: async () => void (await Promise.all(nodes.map((node) => node.close()))),
  }
}

/** A master, its replica, and the sentinels that promote the replica when the master fails. */
export interface SharedSentinels<Server extends SharedRedis = SharedRedis> {
  readonly urls: readonly string[]
  readonly name: string
  readonly master: Server
  readonly replica: Server
}

export interface RedisSentinels extends SharedSentinels<RedisServer> {
  close(): Promise<void>
}

/** What sentinels require; `sentinelTls` is as `tls` of the servers by default. */
interface SentinelGuard extends RedisGuard {
  readonly sentinelPassword?: string
  readonly sentinelTls?: boolean
  /** Silence of the master after which the replica is promoted; 500 by default. */
  readonly downAfterMs?: number
}

/** Starts a master, a replica and three sentinels; resolves when the sentinels know all of them. */
export async function startSentinels(guard: SentinelGuard = {}): Promise<RedisSentinels> {
  const { tls = false, password, sentinelPassword, sentinelTls = tls, downAfterMs = 500 } = guard
  const name = 'main'
  const master = await startRedis({ ...guard, tcp: true, args: ['--repl-diskless-sync-delay', '0'] })
  const replica = await startRedis({
    ...guard,
    tcp: true,
    args: ['--replicaof', '127.0.0.1', String(master.port)],
  })
  await until('the replica follows', async () =>
    String(await replica.command('INFO', 'replication')).includes('master_link_status:up'),
  )
  const dir = mkdtempSync(join(tmpdir(), 'sluice-sentinel-'))
  const ports = await Promise.all([freePort(), freePort(), freePort()])
  // For questions of the other sentinels, which have TLS as the servers have it.
  const otherPorts = await Promise.all([freePort(), freePort(), freePort()])
  const listeningAt = (port: number, other: number): readonly string[] => {
    if (sentinelTls === tls) return listening(port, tls)
    return sentinelTls ? listeningTwice(other, port, false) : listeningTwice(port, other, true)
  }
  const children = ports.map((port, i) => {
    const file = join(dir, `${port}.conf`)
    writeFileSync(
      file,
      [
        'bind 127.0.0.1',
        `dir ${dir}`,
        `sentinel monitor ${name} 127.0.0.1 ${master.port} 2`,
        `sentinel down-after-milliseconds ${name} ${downAfterMs}`,
        `sentinel failover-timeout ${name} 3000`,
        password === undefined ? '' : `sentinel auth-pass ${name} "${password}"`,
        sentinelPassword === undefined ? '' : `requirepass "${sentinelPassword}"`,
      ].join('\n'),
    )
    return launch('redis-server', [file, '--sentinel', ...listeningAt(port, otherPorts[i]!)])
  })
  async function close(): Promise<void> {
    for (const child of children) child.kill('SIGKILL')
    await Promise.all([master.close(), replica.close()])
    rmSync(dir, { recursive: true, force: true })
  }
  closeLater(close)
  const clients = ports.map(
    (port) =>
      new Redis({
        port,
        host: '127.0.0.1',
        protocol: 2,
        retryStrategy: () => 50,
        ...(sentinelTls && { tls: { ca: REDIS_CERT.cert } }),
        ...(sentinelPassword !== undefined && { password: sentinelPassword }),
      }),
  )
  for (const client of clients) client.on('error', () => {})
  await until('the sentinels know the replica and each other', async () => {
    const known = await Promise.all(
      clients.map((client) => client.call('SENTINEL', 'MASTER', name) as Promise<string[]>),
    )
    return known.every(
      (fields) => value(fields, 'num-slaves') === '1' && value(fields, 'num-other-sentinels') === '2',
    )
  })
  for (const client of clients) client.disconnect()
  return {
    urls: ports.map((port) => urlOf(port, sentinelTls)),
    name,
    master,
    replica,
    close,
  }
}

function launch(program: string, args: readonly string[]): ChildProcess & { said(): string } {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  running.add(child)
  let said = ''
  const append = (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-2000)
  }
  child.stdout.on('data', append)
  child.stderr.on('data', append)
  child.once('error', (error: NodeJS.ErrnoException) => {
    said = error.code === 'ENOENT' ? `${program} is not on PATH; get it with: npm run setup` : error.message
    running.delete(child)
  })
  child.once('exit', () => running.delete(child))
  return Object.assign(child, { said: () => said })
}

async function infos(nodes: readonly RedisServer[]): Promise<string[]> {
  return await Promise.all(nodes.map(async (node) => String(await node.command('CLUSTER', 'INFO'))))
}

function value(fields: readonly string[], name: string): string | undefined {
  return fields[fields.indexOf(name) + 1]
}
