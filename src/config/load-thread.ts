import { on, once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import type { Config } from './compile.ts'
import type { Loaded, LoadOptions } from './load.ts'
import { readText } from './text.ts'
import { ConfigError, type LocatedIssue } from './yaml/issue.ts'

/** A part of the clients of a configuration: handing over up to 100,000 of them at once would delay callers. */
export type ClientChunk = Pick<Config, 'clients' | 'clientLimits'>

/** Clients per chunk: handing them over takes about a millisecond. */
const CHUNK_SIZE = 500

/** Yields the clients of a configuration in chunks. Each is handed to another thread or process in an event-loop tick of its own. */
export function* clientChunks({ clients, clientLimits }: Config): Generator<ClientChunk> {
  const own = [...clientLimits]
  for (let i = 0; i < clients.length; i += CHUNK_SIZE)
    yield { clients: clients.slice(i, i + CHUNK_SIZE), clientLimits: new Map(own.slice(i, i + CHUNK_SIZE)) }
}

export function withoutClients(config: Config): Config {
  return { ...config, clients: [], clientLimits: new Map() }
}

export function createCollector() {
  let clients: Config['clients'] = []
  let clientLimits: Config['clientLimits'] = new Map()
  return {
    add(chunk: ClientChunk): void {
      clients.push(...chunk.clients)
      for (const [id, own] of chunk.clientLimits) clientLimits.set(id, own)
    },
    collect(config: Config): Config {
      const complete = { ...config, clients, clientLimits }
      clients = []
      clientLimits = new Map()
      return complete
    },
  }
}

/** A message of the thread: each chunk of clients, then the rest, or the mistakes. For each chunk, the main thread asks for the next. */
type ThreadMessage =
  | { readonly chunk: ClientChunk }
  | { readonly loaded: Loaded }
  | { readonly problems: readonly LocatedIssue[] }

/** Runs `loadConfig` in a thread, so that this one continues to serve. */
export async function loadInThread(options: LoadOptions): Promise<Loaded & { readonly loadMs: number }> {
  const startedAt = performance.now()
  // Read here: a thread cannot read the standard input of the process.
  const text = options.file === '-' ? await readText('-') : undefined
  const thread = new Worker(new URL(import.meta.url), { workerData: { loads: { ...options, text } } })
  const { add, collect } = createCollector()
  try {
    for await (const [message] of on(thread, 'message', { close: ['exit'] }) as AsyncIterable<
      [ThreadMessage]
    >) {
      if ('problems' in message) throw new ConfigError(message.problems)
      if ('loaded' in message) {
        const loadMs = Math.round(performance.now() - startedAt)
        return { ...message.loaded, config: collect(message.loaded.config), loadMs }
      }
      add(message.chunk)
      thread.postMessage('next')
    }
    throw new Error('the thread that reads the configuration ended')
  } finally {
    void thread.terminate()
  }
}

async function* load(options: LoadOptions): AsyncGenerator<ThreadMessage> {
  const { loadConfig } = await import('./load.ts')
  try {
    const loaded = await loadConfig(options)
    for (const chunk of clientChunks(loaded.config)) yield { chunk }
    yield { loaded: { ...loaded, config: withoutClients(loaded.config) } }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    yield { problems: error.problems }
  }
}

const { loads } = (workerData ?? {}) as { readonly loads?: LoadOptions }
if (!isMainThread && loads !== undefined) {
  // The package `yaml` reads a variable for each token, and `process.env` of Node.js is slow: use a plain copy.
  process.env = { ...process.env }
  for await (const message of load(loads)) {
    parentPort!.postMessage(message)
    if ('chunk' in message) await once(parentPort!, 'message')
  }
}
