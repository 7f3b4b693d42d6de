import { EventEmitter } from 'node:events'
import type { openClient } from '../../src/limit/redis/client.ts'
import { hashSlot, hashTag } from '../../src/limit/redis/hash-slot.ts'
import type { Deployment, Executed, Link, Server } from './deployment.ts'
import { halfOf, hashTagOf } from './halves.ts'
import type { Loop, World } from './time.ts'

interface Pending {
  readonly resolve: (reply: unknown) => void
  readonly reject: (error: Error) => void
}

const RETRY_MS = 50
const TAGS = [hashTagOf(0), hashTagOf(1)] as const
const INFO = 'redis_mode:standalone\r\nrole:master\r\n'
/** Returns the count of numbers in the arguments of a script, and of its keys. */
const numbersIn = (args: readonly (string | number)[]): number =>
  args.reduce<number>((sum, arg) => sum + String(arg).split(' ').length, 0)

/** Creates the client of one gateway, in place of ioredis. Each connection keeps its order. */
export function createClient(world: World, loop: Loop, link: Link, deployment: Deployment) {
  const events = new EventEmitter()
  let isClosed = false
  /** The masters that this gateway knows. */
  let known: [Server, Server] = [...deployment.masters]
  const connections = new Map<string, ReturnType<typeof connect>>()

  function connect(server: Server) {
    const pending = new Set<Pending>()
    let isReady = false
    let isEnded = false
    let [lastSentMs, lastAnswerMs] = [0, 0]
    const later = (fromMs: number): number => Math.max(fromMs, link.heldUntilMs) + link.delayMs()

    function end(): void {
      if (isEnded) return
      isEnded = true
      isReady = false
      for (const { reject } of pending) reject(new Error('Connection is closed.'))
      pending.clear()
      if (connections.get(server.name) !== connection) return
      connections.delete(server.name)
      if (!deployment.isCluster) events.emit('close')
      if (!isClosed) loop.clock.after(RETRY_MS, () => refresh())
    }

    function open(): void {
      const reached = later(world.now())
      world.at(
        Math.min(reached + link.delayMs(), world.now() + 1000),
        () => {
          if (isEnded) return
          if (!server.isAlive || reached > world.now()) return end()
          isReady = true
          const isWhole =
            [...connections.values()].filter((other) => other.isReady()).length === new Set(known).size
          if (isWhole) events.emit('ready')
        },
        loop,
      )
    }

    const connection = {
      server,
      isReady: (): boolean => isReady,
      end,
      /** Loses what is under way: all of it, or only the answers. */
      cut(losesRequests: boolean): void {
        if (losesRequests) lastSentMs = Infinity
        lastAnswerMs = Infinity
        world.at(world.now() + link.delayMs(), end, loop)
      },
      send(command: string, args: readonly (string | number)[]): Promise<unknown> {
        if (!isReady)
          return Promise.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"))
        return new Promise((resolve, reject) => {
          const asked = { resolve, reject }
          pending.add(asked)
          const request = { from: loop, command, args }
          const sentAtMs = world.now()
          const arrival = Math.max(lastSentMs, later(sentAtMs))
          lastSentMs = arrival
          if (arrival === Infinity) return server.onLost?.(request)
          const keys = (
            command.startsWith('eval') ? args.slice(2, 2 + Number(args[1])) : args.slice(0, 1)
          ).map(String)
          const carry = (atMs: number, isAnswer: boolean, deliver: () => void): void =>
            link.carry === undefined
              ? void world.at(atMs, deliver, isAnswer ? loop : undefined)
              : link.carry({ connection, isAnswer, keys, sentAtMs, deliver })
          const execute = (): void => {
            if (lastSentMs === Infinity || !server.isAlive) server.onLost?.(request)
            if (lastSentMs === Infinity) return
            if (!server.isAlive) return void world.at(world.now() + link.delayMs(), end, loop)
            if (server.stalledUntilMs > world.now()) return void world.at(server.stalledUntilMs, execute)
            const { busyUntilMs = 0, scriptUs = 0 } = server
            if (busyUntilMs > world.now()) return void world.at(busyUntilMs, execute)
            if (scriptUs > 0) server.busyUntilMs = world.now() + (scriptUs * numbersIn(args)) / 1000
            let reply: unknown
            try {
              reply = server.model.run(command, args)
            } catch (error) {
              reply = error
            }
            const record: Executed = { answeredAtMs: undefined }
            server.onRan?.(request, reply, record, world.now() > arrival)
            if (link.loses?.(keys) === true) return connection.cut(false)
            const answer = Math.max(lastAnswerMs, later(Math.max(world.now(), server.busyUntilMs ?? 0)))
            if (lastAnswerMs === Infinity) return
            lastAnswerMs = answer
            carry(answer, true, () => {
              if (!pending.delete(asked)) return
              record.answeredAtMs = world.now()
              if (reply instanceof Error) reject(reply)
              else resolve(reply)
            })
          }
          carry(arrival, false, execute)
        })
      },
    }
    open()
    return connection
  }

  /** Reads the deployment, and connects to masters without a connection. */
  function refresh(): void {
    if (isClosed) return
    known = [...deployment.masters]
    for (const server of known)
      if (!connections.has(server.name)) connections.set(server.name, connect(server))
    for (const [name, connection] of connections)
      if (!known.some((server) => server.name === name)) connection.end()
  }
  if (deployment.isCluster) loop.clock.every(2000, refresh)

  const serverOf = (key: string): Server => known[deployment.isCluster ? halfOf(key) : 0]
  const nameOf = (server: Server): string => (deployment.isCluster ? server.name : 'redis')
  async function run(command: string, key: string, args: readonly (string | number)[]): Promise<unknown> {
    const connection = connections.get(serverOf(key).name)
    if (connection === undefined) throw new Error('Connection is closed.')
    const owner = deployment.masters[halfOf(key)]
    if (deployment.isCluster && owner !== connection.server && connection.server.isAlive) {
      // The server answers MOVED.
      refresh()
      throw new Error(`MOVED ${hashTag(key)} ${owner.name}`)
    }
    return connection.send(command, args)
  }
  const node = { info: () => Promise.resolve(INFO), options: {} }

  const client = {
    commands: Object.assign(events, {
      evalsha: (...args: (string | number)[]) => run('evalsha', String(args[2]), args),
      eval: (...args: (string | number)[]) => run('eval', String(args[2]), args),
      pexpire: (key: string, ms: number) => run('pexpire', key, [key, ms]),
      exists: (key: string) => run('exists', key, [key]),
      unlink: (key: string) => run('unlink', key, [key]),
      zrem: (key: string, ...members: string[]) => run('zrem', key, [key, ...members]),
    }),
    connect: () =>
      new Promise<void>((resolve, reject) => {
        events.once('ready', resolve)
        events.once('close', () => reject(new Error('connect ECONNREFUSED')))
        refresh()
      }),
    masters: () => [node],
    slot: (key: string) => (deployment.isCluster ? hashSlot(key) : 0),
    server: (key: string) => nameOf(serverOf(key)),
    tags: () =>
      new Map(
        deployment.isCluster
          ? known.map((server, half) => [server.name, (deployment.tags ?? TAGS)[half]!])
          : [['redis', '']],
      ),
    node: () => node,
    reason: (name: string) =>
      connections.has(name) || !deployment.isCluster ? undefined : new Error(`${name}: down`),
    reconnect(name: string): void {
      for (const connection of [...connections.values()])
        if (nameOf(connection.server) === name) connection.end()
      if (deployment.isCluster) loop.clock.after(RETRY_MS, () => refresh())
    },
    close(): void {
      isClosed = true
      for (const connection of [...connections.values()]) connection.end()
    },
  }
  return {
    open: (() => client) as unknown as typeof openClient,
    cut: (losesRequests: boolean): void => {
      for (const connection of [...connections.values()]) connection.cut(losesRequests)
    },
    /** Closes the connection to a server that has died. */
    dropped(server: Server): void {
      const connection = connections.get(server.name)
      if (connection !== undefined) world.at(world.now() + link.delayMs(), connection.end, loop)
    },
    /** Learns of a new master. */
    switched: (): void =>
      void world.at(Math.max(world.now(), link.heldUntilMs) + link.delayMs(), refresh, loop),
  }
}
