import cluster from 'node:cluster'
import { piecesOf, withoutClients } from '../../config/pieces.ts'
import type { Config } from '../../config/schema.ts'
import type { Answered, Asked, Question, Questions } from './messages.ts'
import { wholeLines } from './whole-lines.ts'

/** A question that was not answered in time: whatever it asked for may still be done. */
export class Unanswered extends Error {}

/** A worker, as the first process sees it. */
export interface WorkerProcess {
  readonly pid: number | undefined
  /** Rejects with what the worker failed of, with `Unanswered` when it takes longer than `withinMs`, and when it ends first. */
  ask<Q extends Question>(question: Q, told: Questions[Q][0], withinMs?: number): Promise<Questions[Q][1]>
  /** Asks it to serve with a configuration, or to put one into force; rejects as `ask` does. */
  give<Q extends 'start' | 'apply'>(question: Q, config: Config, withinMs: number): Promise<Questions[Q][1]>
  /** Resolves when it is gone, with its exit code or the signal that ended it. */
  readonly ended: Promise<number | string>
  /** Ends it at once. */
  kill(): void
}

interface Waiting {
  resolve(answer: unknown): void
  reject(error: Error): void
  readonly timer: NodeJS.Timeout | undefined
}

/** Starts a worker, which serves nobody until it is asked to; `write` is given its log in whole lines. */
export function startWorker(write: (lines: string) => void): WorkerProcess {
  // A Config holds maps, which JSON would lose.
  cluster.setupPrimary({
    args: ['worker'],
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const worker = cluster.fork()
  const waiting = new Map<number, Waiting>()
  /** What is sent before the worker listens is lost. */
  let early: Asked[] | undefined = []
  let asked = 0
  let isGone = false

  worker.process.stdout!.setEncoding('utf8').on('data', wholeLines(write))
  worker.on('message', (answered: Answered) => {
    if (early !== undefined) {
      for (const message of early) worker.send(message)
      early = undefined
    }
    const one = waiting.get(answered.id)
    if (one === undefined) return
    settle(answered.id, one)
    if ('answer' in answered) one.resolve(answered.answer)
    else one.reject(Object.assign(new Error(answered.failure.message), { name: answered.failure.name }))
  })
  worker.on('error', () => worker.process.kill('SIGKILL'))

  function settle(id: number, { timer }: Waiting): void {
    clearTimeout(timer)
    waiting.delete(id)
  }

  const ended = new Promise<number | string>((resolve) => {
    // Its last lines come before `close`, its exit code may be known earlier.
    worker.process.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
      isGone = true
      const how = signal ?? code ?? 'unknown'
      for (const [id, one] of waiting) {
        settle(id, one)
        one.reject(new Error(`the worker ended (${how})`))
      }
      resolve(how)
    })
  })

  const ask: WorkerProcess['ask'] = (question, told, withinMs) =>
    new Promise((resolve, reject) => {
      if (isGone || !worker.isConnected()) {
        reject(new Error('the worker is gone'))
        return
      }
      const id = ++asked
      const timer =
        withinMs === undefined
          ? undefined
          : setTimeout(() => {
              waiting.delete(id)
              reject(new Unanswered(`the worker did not answer within ${withinMs} ms`))
            }, withinMs)
      waiting.set(id, { resolve, reject, timer })
      const message: Asked = { id, question, told }
      if (early === undefined) worker.send(message)
      else early.push(message)
    })

  return {
    pid: worker.process.pid,
    ask,
    async give(question, config, withinMs) {
      for (const piece of piecesOf(config)) await ask('clients', piece, withinMs)
      return await ask(question, withoutClients(config), withinMs)
    },
    ended,
    kill: () => void worker.process.kill('SIGKILL'),
  }
}
