import type { Config } from '../../config/schema.ts'
import type { LogOutput } from '../../observe/log.ts'
import type { DrainTimes } from '../service.ts'
import { forkWorker, type WorkerProcess } from './worker-process.ts'

/** How long a worker may take until it serves. */
const START_MS = 60_000

/** A worker is asked so often whether it is alive; it hangs if it has not answered at so many checks in a row. */
const CHECK_MS = 3000
const MAX_CHECKS = 10

const CLOSE_MS = 5000

const FIRST_BACKOFF_MS = 100
const MAX_BACKOFF_MS = 30_000
/** A worker that lived so long is restarted at once. */
const STEADY_MS = 10_000

/**
 * Starts a worker, restarts it with back-off whenever it exits, and kills it if it hangs. `config` returns what a worker that
 * starts now is to serve; `onExit` is called for each that exited unasked.
 */
export function superviseWorker(
  config: () => Config,
  { log, write }: LogOutput,
  onExit: (worker: WorkerProcess) => void,
) {
  const backoff = createBackoff()
  let current: WorkerProcess | undefined
  let closing = false
  /** Undefined until it serves. */
  let stopChecks: (() => void) | undefined
  let retry: NodeJS.Timeout | undefined

  async function spawn(): Promise<string> {
    const startedAt = performance.now()
    const worker = (current = forkWorker(write))
    let hung = false
    void worker.exited.then((how) => {
      current = undefined
      stopChecks?.()
      stopChecks = undefined
      if (closing) return
      onExit(worker)
      const retryMs = backoff(performance.now() - startedAt)
      const what = hung ? `unresponsive for ${(CHECK_MS * MAX_CHECKS) / 1000} s and killed` : 'exited'
      log.error({ pid: worker.pid, how, retryMs }, `worker ${what}; restarting`)
      retry = setTimeout(restart, retryMs)
    })
    let applied = config()
    const address = await worker.configure(applied, START_MS)
    // It may have changed while the worker started.
    while (config() !== applied) await worker.configure((applied = config()), START_MS)
    stopChecks = checkAlive(
      () => worker.call('notReadyReason'),
      () => {
        hung = true
        worker.kill()
      },
    )
    return address
  }

  function restart(): void {
    retry = undefined
    spawn().then(
      () => log.info({ pid: current?.pid }, 'worker restarted'),
      (error: Error) => {
        if (closing) return
        log.error({ pid: current?.pid, cause: error.message }, 'worker start failed')
        if (current !== undefined) current.kill()
        // No process was forked whose exit would be seen.
        else retry ??= setTimeout(restart, backoff(0))
      },
    )
  }

  function stop(): void {
    closing = true
    stopChecks?.()
    clearTimeout(retry)
  }
  return {
    /** Resolves with the address of the first start; rejects if that one failed. */
    started: spawn(),
    /** Returns the process that serves now, if one does. */
    serving: () => stopChecks && current,
    /** Drains it for good, or kills it `CLOSE_MS` after `drainTimeoutMs`; returns how many requests had to be cut. */
    async close(times: DrainTimes): Promise<number> {
      stop()
      const worker = current
      if (worker === undefined) return 0
      if (stopChecks === undefined) worker.kill()
      const late = setTimeout(worker.kill, times.drainTimeoutMs + CLOSE_MS)
      const cut = await worker.call('close', times).catch(() => 0)
      await worker.exited
      clearTimeout(late)
      return cut
    },
    /** Ends it for good, at once. */
    kill(): void {
      stop()
      current?.kill()
    },
  }
}

/** Returns how long to wait before a restart, given how long the worker lived: doubled each time, unless it had started well. */
export function createBackoff(): (livedMs: number) => number {
  let nextMs = 0
  return (livedMs) => {
    const waitMs = livedMs >= STEADY_MS ? 0 : nextMs
    nextMs = Math.min(MAX_BACKOFF_MS, Math.max(FIRST_BACKOFF_MS, waitMs * 2))
    return waitMs
  }
}

/**
 * Calls `ask` again and again, and `onHang` once if it stays unanswered; returns what stops it. Counts checks, not time: while
 * this process itself is stopped, no worker hangs.
 */
export function checkAlive(ask: () => Promise<unknown>, onHang: () => void, everyMs = CHECK_MS): () => void {
  let missed: number | undefined
  const timer = setInterval(() => {
    if (missed === undefined) {
      missed = 0
      const answered = (): void => void (missed = undefined)
      ask().then(answered, answered)
    } else if (++missed === MAX_CHECKS) {
      clearInterval(timer)
      onHang()
    }
  }, everyMs)
  return () => clearInterval(timer)
}
