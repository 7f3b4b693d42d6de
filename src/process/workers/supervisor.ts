import type { Config } from '../../config/schema.ts'
import type { LogOutput } from '../../observe/log.ts'
import type { DrainTimes } from '../service.ts'
import { forkWorker, type WorkerProcess } from './worker-process.ts'

/** Maximum time until a worker serves. */
const START_MS = 60_000
/** Interval of liveness checks, and the number of unanswered ones after which a worker counts as hung. */
const CHECK_MS = 3000
const MAX_CHECKS = 10
/** Time after `drainTimeoutMs` until a draining worker is killed. */
const CLOSE_MS = 5000
const FIRST_BACKOFF_MS = 100
const MAX_BACKOFF_MS = 30_000
/** Running time after which a worker is restarted at once. */
const STEADY_MS = 10_000

/** Starts a worker, kills it if it hangs, and restarts it with back-off. Calls `onExit` for each unexpected exit. */
export function superviseWorker(
  config: () => Config,
  { log, write }: LogOutput,
  onExit: (worker: WorkerProcess) => void,
) {
  const backoff = createBackoff()
  let current: WorkerProcess | undefined
  let closing = false
  /** Undefined until the worker serves. */
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
    // The configuration may have changed while the worker started.
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
        // The fork failed, so no exit will trigger the next restart.
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
    /** Resolves with the address of the first start; rejects if that start failed. */
    started: spawn(),
    serving: () => stopChecks && current,
    /** Drains the worker, kills it if that takes too long, and returns how many requests were cut. */
    async close(times: DrainTimes): Promise<number> {
      stop()
      const worker = current
      if (worker === undefined) return 0
      if (stopChecks === undefined) worker.kill()
      const timeout = setTimeout(worker.kill, times.drainTimeoutMs + CLOSE_MS)
      const cut = await worker.call('close', times).catch(() => 0)
      await worker.exited
      clearTimeout(timeout)
      return cut
    },
    kill(): void {
      stop()
      current?.kill()
    },
  }
}

/** Returns the wait before a restart, given how long the worker ran: doubled each time, unless it ran for `STEADY_MS`. */
export function createBackoff(): (ranMs: number) => number {
  let nextMs = 0
  return (ranMs) => {
    const waitMs = ranMs >= STEADY_MS ? 0 : nextMs
    nextMs = Math.min(MAX_BACKOFF_MS, Math.max(FIRST_BACKOFF_MS, waitMs * 2))
    return waitMs
  }
}

/**
 * Calls `ask` periodically, and `onHang` once after `MAX_CHECKS` checks without an answer. Counts checks, not time, so that a
 * pause of this process is not taken for a hang. Returns a function that stops it.
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
