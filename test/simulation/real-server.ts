import { rmSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { openClient } from '../../src/limit/redis/client.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'

/** Starts a TCP proxy to a server's socket file, which can be broken. */
async function startProxy(path: string) {
  const sockets = new Set<Socket>()
  const state = {
    port: 0,
    losesRequests: false,
    losesAnswers: false,
    /** The bytes that were lost. */
    lostRequests: '',
    lostAnswers: '',
    /** Breaks the connection, and loses nothing of the next. */
    cut(): void {
      for (const socket of sockets) socket.destroy()
      Object.assign(state, { losesRequests: false, losesAnswers: false, lostRequests: '', lostAnswers: '' })
    },
    async close(): Promise<void> {
      state.cut()
      await new Promise((resolve) => void server.close(resolve))
    },
  }
  const server = createServer((near) => {
    const far = connect(path)
    for (const [socket, other] of [[near, far] as const, [far, near] as const]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    near.on('data', (bytes) => {
      if (state.losesRequests) state.lostRequests += bytes.toString()
      else far.write(bytes)
    })
    far.on('data', (bytes) => {
      if (state.losesAnswers) state.lostAnswers += bytes.toString()
      else near.write(bytes)
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  state.port = (server.address() as { port: number }).port
  return state
}

/** The outcome for a client: a reply, which may be an error of Redis, or none. */
type Outcome = { readonly reply: unknown } | { readonly failure: string }

/** Connects the gateway's client to a server's socket file, through a proxy of its own. */
async function openRoute(path: string) {
  const proxy = await startProxy(path)
  const client = openClient({ topology: { url: `redis://127.0.0.1:${proxy.port}` } }, () => {})
  client.commands.on('error', () => {})
  await client.connect().catch(() => {})
  /** The fate of the requests whose answers were lost. */
  let waiting: Promise<Outcome>[] = []

  const send = (command: string, args: readonly (string | number)[]): Promise<Outcome> =>
    client.commands.call(command, ...args).then(
      (reply) => ({ reply }),
      ({ name, message }: Error) => (name === 'ReplyError' ? { reply: message } : { failure: message }),
    )

  /** Breaks the connection if it loses bytes, and waits until there is one that does not. */
  async function repair(): Promise<void> {
    if (isBroken()) proxy.cut()
    const outcomes = await Promise.all(waiting)
    waiting = []
    const outcome = outcomes.find((outcome) => 'reply' in outcome)
    if (outcome !== undefined) throw new Error(`a lost answer arrived: ${JSON.stringify(outcome)}`)
    await until('a gateway is connected', () =>
      client.commands.ping().then(
        () => true,
        () => false,
      ),
    )
  }
  const isBroken = (): boolean => proxy.losesRequests || proxy.losesAnswers

  return {
    send,
    repair,
    cut: proxy.cut,
    /** Sends a request that the server executes, and returns the answer, which is lost on its way back. */
    async sendWithLostAnswer(command: string, args: readonly (string | number)[]): Promise<unknown> {
      if (!isBroken()) await repair()
      proxy.losesAnswers = true
      waiting.push(send(command, args))
      const count = waiting.length
      await until('the server has answered', () => repliesOf(proxy.lostAnswers).length >= count)
      return repliesOf(proxy.lostAnswers)[count - 1]
    },
    /** Sends a request that does not arrive. */
    async sendInVain(command: string, args: readonly (string | number)[], isDown: boolean): Promise<void> {
      if (!isBroken() && !isDown) await repair()
      proxy.losesRequests = !isDown
      waiting.push(send(command, args))
      if (isDown) return
      await until('the request was lost', () => proxy.lostRequests !== '')
    },
    async close(): Promise<void> {
      client.close()
      await proxy.close()
    },
  }
}

/** Reads integers, lists of them and errors, which the commands return. */
function repliesOf(bytes: string): readonly unknown[] {
  const all = [...bytes.matchAll(/-([^\r\n]*)\r\n|\*(\d+)\r\n((?::-?\d+\r\n)*)|:(\d+)\r\n/g)]
  return all
    .map(([, error, size, numbers = '', number]) => {
      if (error !== undefined) return error
      if (number !== undefined) return Number(number)
      const list = numbers.split('\r\n').slice(0, -1)
      return list.length === Number(size) ? list.map((number) => Number(number.slice(1))) : undefined
    })
    .filter((reply) => reply !== undefined)
}

export type RealServer = Awaited<ReturnType<typeof startServer>>

/** Starts a redis-server that keeps its data in an append-only file; a replica if it gets a master. */
export async function startServer(master?: Pick<RedisServer, 'command'> & { readonly path: string }) {
  const link = master === undefined ? undefined : await startProxy(master.path)
  const server = await startRedis({
    args: [
      ...['--appendonly', 'yes', '--appendfsync', 'no', '--repl-diskless-sync-delay', '0'],
      ...(link === undefined ? [] : ['--replicaof', '127.0.0.1', String(link.port)]),
    ],
  })
  const { url: path, command } = server
  const routes = new Map<object, ReturnType<typeof openRoute>>()
  const faults = { full: false, readonly: false }
  let isDown = false

  const info = async (): Promise<string> => String(await command('INFO', 'replication'))
  const offsetOf = (text: string): string | undefined => /master_repl_offset:(\d+)/.exec(text)?.[1]
  async function apply(): Promise<void> {
    if (isDown) return
    await command('CONFIG', 'SET', 'maxmemory', faults.full ? 1 : 0)
    await command('REPLICAOF', ...(faults.readonly ? ['127.0.0.1', 1] : ['NO', 'ONE']))
  }

  return {
    ...server,
    path,
    isDown: (): boolean => isDown,
    /** Returns the connection of a gateway. */
    route(from: object): ReturnType<typeof openRoute> {
      const route = routes.get(from) ?? openRoute(path)
      routes.set(from, route)
      return route
    },
    async setFault(fault: 'full' | 'readonly', isOn: boolean): Promise<void> {
      faults[fault] = isOn
      await apply()
    },
    async down(): Promise<void> {
      isDown = true
      await server.kill()
      for (const route of routes.values()) (await route).cut()
    },
    async up(keepsData: boolean): Promise<void> {
      for (const file of keepsData ? [] : ['appendonlydir', 'dump.rdb']) {
        rmSync(join(dirname(path), file), { recursive: true, force: true })
      }
      await server.start()
      isDown = false
      await apply()
    },
    /** Waits until this replica has all data of its master, and breaks the link. */
    async detach(): Promise<void> {
      await until('a replica has caught up', async () => {
        const [own, other] = [await info(), String(await master!.command('INFO', 'replication'))]
        return own.includes('master_link_status:up') && offsetOf(own) === offsetOf(other)
      })
      await link!.close()
    },
    /** Makes a master of this replica. */
    async promote(): Promise<void> {
      await command('REPLICAOF', 'NO', 'ONE')
      // It writes the data of its master to its file in the background.
      await until('a new master keeps its data', async () => {
        const text = String(await command('INFO', 'persistence'))
        return /aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0/.test(text)
      })
    },
    async close(): Promise<void> {
      for (const route of routes.values()) await (await route).close()
      await link?.close()
      await server.close()
    },
  }
}
