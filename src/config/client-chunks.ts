import type { ClientLimit } from '../policy/limit.ts'
import { plansOfClients } from './keys/plans.ts'
import type { Client, Config } from './config.ts'

/**
 * A part of the clients and the API keys of a configuration: handing over up to 100,000 of them at
 * once would delay callers.
 */
export type ClientChunk = Pick<Config, 'clients' | 'clientLimits' | 'apiKeys'>

/** Clients and keys per chunk: handing them over takes about a millisecond. */
const CHUNK_SIZE = 500

/**
 * Yields the clients and the API keys of a configuration in chunks. Each is handed to another thread or process in
 * an event-loop tick of its own.
 */
export function* clientChunks({ clients, clientLimits, apiKeys }: Config): Generator<ClientChunk> {
  for (let i = 0; i < Math.max(clients.length, apiKeys.length); i += CHUNK_SIZE) {
    const chunk = clients.slice(i, i + CHUNK_SIZE)
    const own = chunk.map(({ caller }) => [caller, clientLimits.get(caller)] as const)
    const keys = apiKeys.slice(i, i + CHUNK_SIZE)
    yield { clients: chunk, clientLimits: new Map(own.filter(hasLimits)), apiKeys: keys }
  }
}

const hasLimits = <T>(entry: readonly [string, T | undefined]): entry is readonly [string, T] =>
  entry[1] !== undefined

export const withoutClients = (config: Config): Config => ({
  ...config,
  clients: [],
  clientLimits: new Map(),
  apiKeys: [],
  plans: { ...config.plans, ofClients: new Map() },
})

export function createCollector() {
  let clients: Client[] = []
  let clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  let apiKeys: Config['apiKeys'][number][] = []
  return {
    add(chunk: ClientChunk): void {
      clients.push(...chunk.clients)
      apiKeys.push(...chunk.apiKeys)
      for (const [caller, own] of chunk.clientLimits) clientLimits.set(caller, own)
    },
    collect(config: Config): Config {
      const plans = { ...config.plans, ofClients: plansOfClients(clients, apiKeys) }
      const complete = { ...config, clients, clientLimits, apiKeys, plans }
      clients = []
      apiKeys = []
      clientLimits = new Map()
      return complete
    },
  }
}
