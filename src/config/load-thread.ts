import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { type ClientChunk, clientChunks, createCollector, withoutClients } from './client-chunks.ts'
import { readText } from './text.ts'
import type { Loaded, LoadOptions } from './load.ts'
import { ConfigError, type LocatedIssue } from './yaml/issue.ts'

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
  // A plain copy: the YAML parser reads the environment for each scalar, and Node.js's own object is slow.
  process.env = { ...process.env }
  for await (const message of load(loads)) {
    parentPort!.postMessage(message)
    if ('chunk' in message) await once(parentPort!, 'message')
  }
}
