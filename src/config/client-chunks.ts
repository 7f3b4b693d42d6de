import type { ClientLimit } from '../limit/limit.ts'
import type { Config } from './schema.ts'

/** A part of the clients of a configuration: handing over up to 100,000 of them at once would delay callers. */
export type ClientChunk = Pick<Config, 'clients' | 'clientLimits'>

/** Clients per chunk: handing them over takes about a millisecond. */
const CHUNK_SIZE = 500

/** Yields the clients of a configuration in chunks, to be handed to another thread or process one in each event-loop tick. */
export function* clientChunks({ clients, clientLimits }: Config): Generator<ClientChunk> {
  const own = [...clientLimits]
  for (let i = 0; i < clients.length; i += CHUNK_SIZE)
    yield { clients: clients.slice(i, i + CHUNK_SIZE), clientLimits: new Map(own.slice(i, i + CHUNK_SIZE)) }
}

export function withoutClients(config: Config): Config {
  return { ...config, clients: [], clientLimits: new Map() }
}

/** Creates a collector, which reassembles a configuration from its chunks. */
export function createCollector(): { add(chunk: ClientChunk): void; collect(config: Config): Config } {
  let clients: Config['clients'][number][] = []
  let clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  return {
    add(chunk) {
      clients.push(...chunk.clients)
      for (const [id, own] of chunk.clientLimits) clientLimits.set(id, own)
    },
    collect(config) {
      const complete = { ...config, clients, clientLimits }
      clients = []
      clientLimits = new Map()
      return complete
    },
  }
}
