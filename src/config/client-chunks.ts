import type { Config } from './compile.ts'

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
  const own = [...clientLimits]
  for (let i = 0; i < clients.length; i += CHUNK_SIZE)
    yield { clients: clients.slice(i, i + CHUNK_SIZE), clientLimits: new Map(own.slice(i, i + CHUNK_SIZE)) }
}

const noClients = (): ClientChunk => ({ clients: [], clientLimits: new Map() })

export const withoutClients = (config: Config): Config => ({ ...config, ...noClients() })

export function createCollector() {
  let collected = noClients()
  return {
    add({ clients, clientLimits }: ClientChunk): void {
      collected.clients.push(...clients)
      for (const [id, own] of clientLimits) collected.clientLimits.set(id, own)
    },
    collect(config: Config): Config {
      const complete = { ...config, ...collected }
      collected = noClients()
      return complete
    },
  }
}
