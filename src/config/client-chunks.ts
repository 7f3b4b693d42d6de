import type { ClientLimit } from '../limit/limit.ts'
import type { Config } from './schema.ts'

/** A few of the clients of a configuration: there may be 100,000, and to take them over at once would hold up callers. */
export type ClientChunk = Pick<Config, 'clients' | 'clientLimits'>

/** So many clients are taken over in about a millisecond. */
const CLIENTS = 500

/** The clients of a configuration, as they are handed to another thread or process, one chunk in each tick of its event loop. */
export function* clientChunks({ clients, clientLimits }: Config): Generator<ClientChunk> {
  const own = [...clientLimits]
  for (let i = 0; i < clients.length; i += CLIENTS)
    yield { clients: clients.slice(i, i + CLIENTS), clientLimits: new Map(own.slice(i, i + CLIENTS)) }
}

/** A configuration without the clients that travel in chunks. */
export function withoutClients(config: Config): Config {
  return { ...config, clients: [], clientLimits: new Map() }
}

/** Puts the chunks together again as they come. */
export function createCollector(): { add(chunk: ClientChunk): void; collect(config: Config): Config } {
  let clients: Config['clients'][number][] = []
  let clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  return {
    add(chunk) {
      clients.push(...chunk.clients)
      for (const [id, own] of chunk.clientLimits) clientLimits.set(id, own)
    },
    collect(config) {
      const whole = { ...config, clients, clientLimits }
      clients = []
      clientLimits = new Map()
      return whole
    },
  }
}
