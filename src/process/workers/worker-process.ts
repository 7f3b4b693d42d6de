import cluster from 'node:cluster'
import { setTimeout as sleep } from 'node:timers/promises'
import { clientChunks, withoutClients } from '../../config/client-chunks.ts'
import type { Config } from '../../config/schema.ts'
import type { Call, Result, WorkerCalls } from './worker.ts'

/** A call that was not answered in time: what it asked for may still happen. */
export class CallTimeout extends Error {}

/** A worker, as the primary process sees it. */
export type WorkerProcess = ReturnType<typeof forkWorker>

/** Forks a worker, which serves once it is configured; `write` gets its log in whole lines. */
export function forkWorker(write: (lines: string) => void) {
  // A Config holds maps, which JSON would lose.
  cluster.setupPrimary({
    args: ['worker'],
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const worker = cluster.fork()
  const waiting = new Map<number, (result: Result) => void>()
  let calls = 0
  let hasExited = false

  worker.process.stdout!.setEncoding('utf8').on('data', wholeLines(write))
  worker.on('error', () => worker.process.kill('SIGKILL'))
  worker.on('message', (result: Result) => waiting.get(result.id)?.(result))
  const listening = new Promise((resolve) => waiting.set(0, resolve))

  /** Resolves when it has exited, with its exit code or the signal that ended it. */
  const exited = new Promise<number | string>((resolve) => {
    // Its last lines come before `close`, its exit code may be known earlier.
    worker.process.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
      hasExited = true
      const how = signal ?? code ?? 'unknown'
      const error = { name: 'Error', message: `the worker exited (${how})` }
      for (const settle of waiting.values()) settle({ id: 0, error })
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
      if (hasExited || !worker.isConnected()) throw new Error('the worker is gone')
      const id = ++calls
      const late = (): void => {
        waiting.delete(id)
        reject(new CallTimeout(`the worker did not answer within ${withinMs} ms`))
      }
      const timer = withinMs === undefined ? undefined : setTimeout(late, withinMs)
      waiting.set(id, ({ value, error }) => {
        waiting.delete(id)
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
    /** Calls `configure`, with the many clients ahead in chunks. */
    async configure(config: Config, withinMs: number): Promise<string> {
      // A message that comes before the worker listens is lost.
      await Promise.race([listening, sleep(withinMs, undefined, { ref: false })])
      for (const chunk of clientChunks(config)) await call('addClients', chunk, withinMs)
      return await call('configure', withoutClients(config), withinMs)
    },
    /** Kills it at once. */
    kill: (): void => void worker.process.kill('SIGKILL'),
  }
}

/** Passes text on in whole lines, since those of several processes must not meet within a line. */
export function wholeLines(write: (lines: string) => void): (text: string) => void {
  let rest = ''
  return (text) => {
    const end = text.lastIndexOf('\n') + 1
    if (end > 0) write(rest + text.slice(0, end))
    rest = end > 0 ? text.slice(end) : rest + text
  }
}
