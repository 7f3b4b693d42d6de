import { createHash } from 'node:crypto'
import { interpreter } from './redis/interpreter.ts'

/** The data of a server at one instant, for restarts and failovers. It stays in the interpreter until it is released. */
export interface Snapshot {
  readonly id: number
  release(): void
}

/** A Redis server on the clock of a simulation, which runs the real scripts in Lua 5.1, as Redis does. */
export interface RedisModel {
  /** Runs a command and returns its reply as ioredis does; throws an Error with Redis's message. */
  run(command: string, args: readonly (string | number)[]): unknown
  snapshot(): Snapshot
  /** Replaces the data; empties the server if undefined. */
  restart(data?: Snapshot, options?: { readonly keepScripts?: boolean }): void
  flushScripts(): void
  /** Removes the keys that have expired, as Redis does within a tenth of a second. */
  sweep(): void
  /** Refuses commands that need memory, and scripts at their first write if that does. */
  isFull: boolean
  /** Refuses writes, as a replica does. */
  isReadOnly: boolean
  close(): void
}

const shas = new Map<string, string>()

/** Returns the hash of a script's text. */
function shaOf(text: string): string {
  const sha = shas.get(text) ?? createHash('sha1').update(text).digest('hex')
  shas.set(text, sha)
  return sha
}

let created = 0

/** Creates an empty server. `nowUs` is its clock, in microseconds since the epoch; it may be set back. */
export function createRedisModel(nowUs: () => number): RedisModel {
  const id = String(++created)
  const call = interpreter()
  call('create', id)

  function run(command: string, args: readonly (string | number)[]): unknown {
    let name = command
    let given = args
    if (/^info$/i.test(name)) return info(model.isReadOnly)
    if (/^script$/i.test(name) && /^load$/i.test(String(args[0]))) {
      name = 'LOAD'
      given = args.slice(1)
    }
    if (/^(?:eval|load)$/i.test(name)) given = [shaOf(String(given[0])), ...given]
    const us = Math.floor(nowUs())
    const clock = `${Math.floor(us / 1e6)} ${us % 1e6}`
    let message = `${id} ${clock} ${model.isFull ? 1 : 0} ${model.isReadOnly ? 1 : 0} ${name}\n`
    for (const field of given) message += `${typeof field === 'number' ? field : escape(field)}\n`
    return decode(call('run', message))
  }

  const model: RedisModel = {
    isFull: false,
    isReadOnly: false,
    run,
    snapshot() {
      const snapshot = run('SNAPSHOT', []) as number
      return { id: snapshot, release: () => void call('release', String(snapshot)) }
    },
    restart: (data, { keepScripts = false } = {}) =>
      void run('RESTART', [data?.id ?? 0, Number(keepScripts)]),
    flushScripts: () => void run('SCRIPT', ['FLUSH']),
    sweep: () => void run('SWEEP', []),
    close: () => void call('close', id),
  }
  return model
}

/** Returns the fields of INFO that the gateway reads. */
const info = (isReadOnly: boolean): string =>
  [
    'redis_version:7.0.15',
    'redis_mode:standalone',
    `role:${isReadOnly ? 'slave' : 'master'}`,
    'maxmemory:0',
    'maxmemory_policy:noeviction',
    'cluster_enabled:0',
    '',
  ].join('\r\n')

const CODES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\0': '\\0' }
// oxlint-disable-next-line no-control-regex
const SPECIAL = /[\\\n\0]/g

function escape(text: string): string {
  return text.replace(SPECIAL, (char) => CODES[char]!)
}

function unescape(text: string): string {
  if (!text.includes('\\')) return text
  return text.replace(/\\(.)/g, (_, code: string) => (code === 'n' ? '\n' : code === '0' ? '\0' : code))
}

/** Reads a reply of server.lua. */
function decode(reply: string): unknown {
  if (reply.startsWith('#')) return numbers(reply)
  const lines = reply.split('\n')
  let at = 0
  function next(): unknown {
    const line = lines[at++]!
    const rest = line.slice(1)
    switch (line[0]) {
      case ':':
        return Number(rest)
      case '#':
        return numbers(line)
      case '*':
        return Array.from({ length: Number(rest) }, next)
      case '-':
        return new Error(unescape(rest))
      case '_':
        return null
      default:
        return unescape(rest)
    }
  }
  const value = next()
  if (value instanceof Error) throw value
  return value
}

const numbers = (line: string): number[] => (line.length === 1 ? [] : line.slice(1).split(',').map(Number))
