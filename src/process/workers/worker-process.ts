import cluster from 'node:cluster'
import { setTimeout as sleep } from 'node:timers/promises'
import { clientChunks, withoutClients } from '../../config/client-chunks.ts'
import type { Config } from '../../config/schema.ts'
import type { Call, Result, WorkerCalls } from './worker.ts'

/** A call without an answer in time: its effect may still happen. */
export class CallTimeout extends Error {}

export type WorkerProcess = ReturnType<typeof forkWorker>

/** Forks a worker, which serves once it is configured; `write` is called with its log, in whole lines. */
export function forkWorker(write: (lines: string) => void) {
  cluster.setupPrimary({
    args: ['worker'],
    // A Config contains maps, which JSON would lose.
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const worker = cluster.fork()
  const pending = new Map<number, (result: Result) => void>()
  let calls = 0
  let hasExited = false
  const kill = (): void => void worker.process.kill('SIGKILL')

  worker.process.stdout!.setEncoding('utf8').on('data', wholeLines(write))
  worker.on('error', kill)
  worker.on('message', (result: Result) => pending.get(result.id)?.(result))
  const listening = new Promise((resolve) => pending.set(0, resolve))

  /** Resolves with the exit code, or the signal that ended the worker. */
  const exited = new Promise<number | string>((resolve) => {
    // `close` comes after the last lines of the log, `exit` may come before.
    worker.process.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
      hasExited = true
      const how = signal ?? code ?? 'unknown'
      const error = { name: 'Error', message: `the worker exited (${how})` }
      for (const settle of pending.values()) settle({ id: 0, error })
      resolve(how)
    })
  })

  /** Rejects with the worker's error, with `CallTimeout` after `withinMs`, and if the worker exits first. */
  function call<Name extends keyof WorkerCalls>(
    name: Name,
    argument?: Parameters<WorkerCalls[Name]>[0],
    withinMs?: number,
  ): Promise<Awaited<ReturnType<WorkerCalls[Name]>>> {
    return new Promise((resolve, reject) => {
      if (hasExited || !worker.isConnected()) throw new Error('the worker has exited')
      const id = ++calls
      const onTimeout = (): void => {
        pending.delete(id)
        reject(new CallTimeout(`the worker did not answer within ${withinMs} ms`))
      }
      const timer = withinMs === undefined ? undefined : setTimeout(onTimeout, withinMs)
      pending.set(id, ({ value, error }) => {
        pending.delete(id)
        clearTimeout(timer)
        if (error === undefined) resolve(value as never)
        else reject(Object.assign(new Error(error.message), { name: error.name }))
      })
      worker.send({ id, name, argument } satisfies Call)
    })
  }

  return {
    pid: worker.process.pid,
    exited,
    call,
    /** Applies a configuration, whose clients are sent ahead in chunks. */
    async configure(config: Config, withinMs: number): Promise<string> {
      // A message that arrives before the worker listens is lost.
      await Promise.race([listening, sleep(withinMs, undefined, { ref: false })])
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
