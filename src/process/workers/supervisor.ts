import cluster from 'node:cluster'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../../config/config.ts'
import { clientChunks, withoutClients } from '../../config/client-chunks.ts'
import type { LogOutput } from '../../observe/log.ts'
import { toError } from '../../runtime/to-error.ts'
import type { Argument, Call, CallName, Result, Value } from './worker.ts'

/** Maximum time until a worker serves. */
const START_MS = 60_000
/** Time for the result of most calls. */
const ANSWER_MS = 3000
/** Interval of liveness checks, and the number of unanswered ones after which a worker counts as hung. */
const CHECK_MS = 3000
const MAX_CHECKS = 10
const HUNG = `unresponsive for ${(CHECK_MS * MAX_CHECKS) / 1000} s and killed`
/** Time after `drainTimeoutMs` until a draining worker is killed. */
const CLOSE_MS = 5000
const FIRST_BACKOFF_MS = 100
const MAX_BACKOFF_MS = 30_000
/** Running time after which a worker is restarted at once. */
const STEADY_MS = 10_000

export type WorkerProcess = ReturnType<typeof forkWorker>

/** Starts a worker, and restarts it with back-off when it exits. Calls `onExit` for each unexpected exit. */
export function superviseWorker(
  config: () => Config,
  { log, write }: LogOutput,
  onExit: (worker: WorkerProcess) => void,
) {
  const backoff = createBackoff()
  const closing = new AbortController()
  const { signal } = closing
  let startedAt = 0
  /** The current process, also after its exit; undefined if it could not be forked. */
  let worker: WorkerProcess | undefined
  let isServing = false

  async function start(): Promise<string> {
    startedAt = performance.now()
    worker = undefined
    worker = forkWorker(write)
    let applied = config()
    const address = await worker.configure(applied, START_MS)
    // The configuration may have changed while the worker started.
    while (config() !== applied) await worker.configure((applied = config()), START_MS)
    isServing = true
    return address
  }

  async function restartOnExit(): Promise<void> {
    for (;;) {
      const exit = await worker?.exited
      isServing = false
      if (signal.aborted) return
      const retryMs = backoff(performance.now() - startedAt)
      if (worker !== undefined) {
        onExit(worker)
        log.error({ pid: worker.pid, how: exit?.how, retryMs }, `worker ${exit?.what}; restarting`)
      }
      await sleep(retryMs, undefined, { signal }).catch(() => {})
      if (signal.aborted) return
      try {
        await start()
        log.info({ pid: worker?.pid }, 'worker restarted')
      } catch (error) {
        const cause = toError(error).message
        if (!signal.aborted) log.error({ pid: worker?.pid, cause }, 'worker start failed')
        worker?.kill()
      }
    }
  }
  const started = start()
  void started.then(restartOnExit, () => {})

  return {
    /** Resolves with the address of the first start; rejects if that start failed. */
    started,
    serving: () => (isServing ? worker : undefined),
    /** Drains the worker, kills it if that takes too long, and returns how many requests were cut. */
    async close(lameDuck: boolean): Promise<number> {
      closing.abort()
      const withinMs = config().drainTimeoutMs + CLOSE_MS
      const cut = isServing ? await worker!.call('close', lameDuck, withinMs).catch(() => 0) : 0
      worker?.kill()
      await worker?.exited
      return cut
    },
  }
}

/**
 * Forks a worker, which serves once it is configured, and kills it if it hangs; `write` is called
 * with its log, in whole lines.
 */
function forkWorker(write: (lines: string) => void) {
  cluster.setupPrimary({
    args: ['worker'],
    // A Config contains maps, which JSON would lose.
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const worker = cluster.fork()
  const pending = new Map<number, (result: Result) => void>()
  let calls = 0
  let what = 'exited'
  const kill = (): void => void worker.process.kill('SIGKILL')

  // Undefined if the fork fails because too many files are open.
  worker.process.stdout?.setEncoding('utf8').on('data', wholeLines(write))
  worker.on('error', kill)
  worker.on('message', (result: Result) => pending.get(result.id)?.(result))
  // A call that arrives before the first message is lost.
  const listening = new Promise((resolve) => void worker.once('message', resolve))
  function onHang(): void {
    what = HUNG
    kill()
  }
  const ask = () => call('notReadyReason', undefined, Infinity)
  const stopChecks = listening.then(() => checkAlive(ask, onHang))

  /** Resolves with the exit code, or the signal that ended the worker. */
  const exited = new Promise<{ readonly how: number | string; readonly what: string }>((resolve) => {
    // `close` comes after the last lines of the log, `exit` may come before.
    worker.process.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
      void stopChecks.then((stop) => stop())
      const how = signal ?? code ?? 'unknown'
      const error = { name: 'Error', message: `the worker exited (${how})` }
      for (const [id, settle] of pending) settle({ id, error })
      resolve({ how, what })
    })
  })

  /**
   * Rejects with the worker's error, with a `CallTimeout` after `withinMs` unless that is Infinity,
   * and if the worker exits first.
   */
  function call<Name extends CallName>(
    name: Name,
    argument?: Argument<Name>,
    withinMs = ANSWER_MS,
  ): Promise<Value<Name>> {
    return new Promise((resolve, reject) => {
      if (!worker.isConnected()) throw new Error('the worker has exited')
      const id = ++calls
      const settle = ({ value, error }: Result): void => {
        pending.delete(id)
        clearTimeout(timer)
        // The worker ran the function of this name.
        if (error === undefined) resolve(value as Value<Name>)
        else reject(Object.assign(new Error(error.message), { name: error.name }))
      }
      const error = { name: 'CallTimeout', message: `worker did not answer within ${withinMs} ms` }
      const timer = withinMs === Infinity ? undefined : setTimeout(settle, withinMs, { id, error })
      pending.set(id, settle)
      void listening.then(() => worker.send({ id, name, argument } satisfies Call))
    })
  }

  return {
    pid: worker.process.pid,
    exited,
    call,
    /** Applies a configuration, whose clients are sent ahead in chunks. */
    async configure(config: Config, withinMs: number): Promise<string> {
      for (const chunk of clientChunks(config)) await call('addClients', chunk, withinMs)
      return await call('configure', withoutClients(config), withinMs)
    },
    kill,
  }
}

/** Splits text after its last newline, so that lines of several processes do not mix. */
export function wholeLines(write: (lines: string) => void): (text: string) => void {
  let rest = ''
  return (text) => {
    const end = text.lastIndexOf('\n') + 1
    if (end > 0) write(rest + text.slice(0, end))
    rest = end > 0 ? text.slice(end) : rest + text
  }
}

/**
 * Returns the wait before a restart, given how long the worker ran: doubled each time, unless it
 * ran for `STEADY_MS`.
 */
export function createBackoff(): (ranMs: number) => number {
  let nextMs = 0
  return (ranMs) => {
    const waitMs = ranMs >= STEADY_MS ? 0 : nextMs
    nextMs = Math.min(MAX_BACKOFF_MS, Math.max(FIRST_BACKOFF_MS, waitMs * 2))
    return waitMs
  }
}

/**
 * Calls `ask` periodically, and `onHang` once after `MAX_CHECKS` unanswered checks: this process
 * may pause, too. Returns a function that stops it.
 */
export function checkAlive(ask: () => Promise<unknown>, onHang: () => void, everyMs = CHECK_MS) {
  let unanswered = 0
  const answered = (): void => void (unanswered = 0)
  const timer = setInterval(() => {
    if (unanswered === 0) ask().then(answered, answered)
    if (unanswered++ === MAX_CHECKS) onHang()
  }, everyMs)
  return () => clearInterval(timer)
}
