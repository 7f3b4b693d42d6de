import type { Config } from '../../config/schema.ts'
import type { LogOutput } from '../../observe/log.ts'
import type { DrainTimes } from './service.ts'
import { createBackoff } from './backoff.ts'
import { startWorker, type WorkerProcess } from './worker-process.ts'
import { SILENT_SECONDS, watchOver } from './health-check.ts'

/** How long a worker may take until it serves. */
const START_MS = 60_000

export interface Keep {
  /** What a worker that starts now is to serve. */
  config(): Config
  readonly output: LogOutput
  /** One worker more serves, or one less. */
  onServing(change: 1 | -1): void
  /** Told of each worker that ended unasked. */
  onEnd(worker: WorkerProcess): void
}

/** A worker that is started again whenever it ends, and ended where it hangs. */
export interface KeptWorker {
  /** The address of the first start; rejects where that one failed. */
  readonly started: Promise<string>
  /** The process that serves now, if one does. */
  serving(): WorkerProcess | undefined
  /** Ends it for good; how many requests had to be cut. Whatever lives beyond `withinMs` is killed. */
  close(times: DrainTimes, withinMs: number): Promise<number>
  /** Ends it for good, at once. */
  kill(): void
}

/** Starts a worker and keeps it: ever more slowly where it ends soon. */
export function keepWorker({ config, output, onServing, onEnd }: Keep): KeptWorker {
  const { log, write } = output
  const backoff = createBackoff()
  let current: WorkerProcess | undefined
  let serves = false
  let closing = false
  let endWatch: (() => void) | undefined
  let retry: NodeJS.Timeout | undefined

  async function spawn(): Promise<string> {
    const startedAt = performance.now()
    const worker = startWorker(write)
    current = worker
    let hung = false
    void worker.ended.then((how) => {
      current = undefined
      endWatch?.()
      if (serves) onServing(-1)
      serves = false
      if (closing) return
      onEnd(worker)
      const retryMs = backoff(performance.now() - startedAt)
      const what = hung ? `did not answer for ${SILENT_SECONDS} seconds and was killed` : 'ended'
      log.error({ pid: worker.pid, how, retryMs }, `a worker ${what}; another is started`)
      later(retryMs)
    })
    let given = config()
    const address = await worker.give('start', given, START_MS)
    // It may have changed while the worker started.
    while (config() !== given) await worker.give('apply', (given = config()), START_MS)
    serves = true
    onServing(1)
    endWatch = watchOver(
      () => worker.ask('unready', undefined),
      () => {
        hung = true
        worker.kill()
      },
    )
    return address
  }

  async function again(): Promise<void> {
    try {
      await spawn()
      log.info({ pid: current?.pid }, 'a worker serves again')
    } catch (error) {
      if (closing) return
      log.error({ pid: current?.pid, cause: (error as Error).message }, 'a worker could not start')
      if (current !== undefined) current.kill()
      // There was not even a process whose end would be seen.
      else if (retry === undefined) later(backoff(0))
    }
  }

  function later(afterMs: number): void {
    retry = setTimeout(() => {
      retry = undefined
      void again()
    }, afterMs)
  }

  function stop(): void {
    closing = true
    endWatch?.()
    clearTimeout(retry)
  }

  return {
    started: spawn(),
    serving: () => (serves ? current : undefined),
    async close(times, withinMs) {
      stop()
      const worker = current
      if (worker === undefined) return 0
      if (!serves) worker.kill()
      const late = setTimeout(() => worker.kill(), withinMs)
      const cut = await worker.ask('close', times).catch(() => 0)
      await worker.ended
      clearTimeout(late)
      return cut
    },
    kill() {
      stop()
      current?.kill()
    },
  }
}
