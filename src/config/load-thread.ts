import { on, once } from 'node:events'
import { getHeapStatistics } from 'node:v8'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { type ClientChunk, clientChunks, createCollector, withoutClients } from './client-chunks.ts'
import type { Started } from './kept/load-or-kept.ts'
import type { LoadOptions } from './load.ts'
import { readText } from './text.ts'
import { toError } from '../runtime/to-error.ts'

/**
 * A message of the thread: each chunk of clients, then the rest. For each chunk, the main thread
 * asks for the next.
 */
type ThreadMessage = { readonly chunk: ClientChunk } | { readonly loaded: Started }

/**
 * Loads a configuration in a thread, so that this one continues to serve: after `before`, leaving out
 * the files of teams that have mistakes; without it, for a process that starts. Rejects with a copy
 * of the error, which has its fields, but not its class, or with an error that says that the file is
 * too large for the memory.
 */
export async function loadInThread(options: LoadOptions) {
  const startedAt = performance.now()
  // Read here: a thread cannot read the standard input of the process.
  const loads = { ...options, text: options.file === '-' ? await readText('-') : undefined }
  const thread = new Worker(new URL(import.meta.url), { workerData: { loads } })
  const { add, collect } = createCollector()
  try {
    const messages = on(thread, 'message', { close: ['exit'] }) as AsyncIterable<[ThreadMessage]>
    for await (const [message] of messages) {
      if ('loaded' in message) {
        const loadMs = Math.round(performance.now() - startedAt)
        return { ...message.loaded, config: collect(message.loaded.config), loadMs }
      }
      add(message.chunk)
      thread.postMessage('next')
    }
    throw new Error('the thread that reads the configuration ended')
  } catch (error) {
    const { code } = toError(error)
    throw code === 'ERR_WORKER_OUT_OF_MEMORY' ? new Error(tooLarge(options.file), { cause: error }) : error
  } finally {
    void thread.terminate()
  }
}

function tooLarge(file: string): string {
  const megabytes = Math.round(getHeapStatistics().heap_size_limit / 2 ** 20)
  return `${file} is too large for ${megabytes} MB of heap; give the process more memory (docs/sizing.md)`
}

const { loads } = (workerData ?? {}) as { readonly loads?: LoadOptions }
if (!isMainThread && loads !== undefined) {
  // The package `yaml` reads a variable for each token, and `process.env` of Node.js is slow: use a
  // plain copy.
  process.env = { ...process.env }
  const { loadOrKept } = await import('./kept/load-or-kept.ts')
  const { loadConfig } = await import('./load.ts')
  const isStart = loads.before === undefined
  const loaded: Started = await (isStart ? loadOrKept(loads) : loadConfig({ ...loads, isolate: true }))
  const send = (message: ThreadMessage): void => parentPort!.postMessage(message)
  for (const chunk of clientChunks(loaded.config)) {
    send({ chunk })
    await once(parentPort!, 'message')
  }
  send({ loaded: { ...loaded, config: withoutClients(loaded.config) } })
}
