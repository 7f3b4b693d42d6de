import type { ClientLimit } from '../policy/limit.ts'
import type { Client, Config } from './config.ts'

/**
 * A part of the clients of a configuration: handing over up to 100,000 of them at once would delay
 * callers.
 */
export type ClientChunk = Pick<Config, 'clients' | 'clientLimits'>

/** Clients per chunk: handing them over takes about a millisecond. */
const CHUNK_SIZE = 500

/**
 * Yields the clients of a configuration in chunks. Each is handed to another thread or process in
 * an event-loop tick of its own.
 */
export function* clientChunks({ clients, clientLimits }: Config): Generator<ClientChunk> {
  for (let i = 0; i < clients.length; i += CHUNK_SIZE) {
    const chunk = clients.slice(i, i + CHUNK_SIZE)
    const own = chunk.map(({ caller }) => [caller, clientLimits.get(caller)] as const)
    yield { clients: chunk, clientLimits: new Map(own.filter(hasLimits)) }
  }
}

const hasLimits = <T>(entry: readonly [string, T | undefined]): entry is readonly [string, T] =>
  entry[1] !== undefined

export const withoutClients = (config: Config): Config => ({
  ...config,
  clients: [],
  clientLimits: new Map(),
})

export function createCollector() {
  let clients: Client[] = []
  let clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  return {
    add(chunk: ClientChunk): void {
      clients.push(...chunk.clients)
      for (const [caller, own] of chunk.clientLimits) clientLimits.set(caller, own)
    },
    collect(config: Config): Config {
      const complete = { ...config, clients, clientLimits }
      clients = []
      clientLimits = new Map()
      return complete
    },
  }
}
