import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { readText } from './files.ts'
import type { Loaded, LoadOptions } from './load.ts'
import { type ClientChunk, clientChunks, createCollector, withoutClients } from './client-chunks.ts'
import { ConfigError, type LocatedIssue } from './yaml/issue.ts'

/** What the thread sends: the clients a chunk at a time, each once it is asked for the next, and then the rest. */
type ThreadMessage =
  | { readonly chunk: ClientChunk }
  | { readonly loaded: Loaded }
  | { readonly problems: readonly LocatedIssue[] }

/** `loadConfig` in a thread of its own, so that this one goes on serving meanwhile. */
export async function loadInThread(options: LoadOptions): Promise<Loaded & { readonly loadMs: number }> {
  const startedAt = performance.now()
  // The thread has a standard input of its own.
  const text = options.file === '-' ? await readText('-') : undefined
  const thread = new Worker(new URL(import.meta.url), { workerData: { loads: { ...options, text } } })
  const { add, collect } = createCollector()
  try {
    return await new Promise((resolve, reject) => {
      thread.on('error', reject)
      thread.on('exit', () => reject(new Error('the thread that reads the configuration ended')))
      thread.on('message', (message: ThreadMessage) => {
        if ('chunk' in message) {
          add(message.chunk)
          thread.postMessage('next')
        } else if ('problems' in message) reject(new ConfigError(message.problems))
        else {
          const loadMs = Math.round(performance.now() - startedAt)
          resolve({ ...message.loaded, config: collect(message.loaded.config), loadMs })
        }
      })
    })
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
  // The YAML parser asks it at every word, and Node.js's own is slow to answer.
  process.env = { ...process.env }
  for await (const message of load(loads)) {
    parentPort!.postMessage(message)
    if ('chunk' in message) await once(parentPort!, 'message')
  }
}
