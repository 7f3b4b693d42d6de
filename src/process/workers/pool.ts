import type { Config } from '../../config/schema.ts'
import type { LogOutput } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import { addUp, type MetricValues, onlyCounts, textOf } from '../../observe/metrics-sum.ts'
import type { Service } from './service.ts'
import { keepWorker } from './supervisor.ts'
import { Unanswered, type WorkerProcess } from './worker-process.ts'

/** How long a worker may take to say that it is ready: less than a probe waits. */
const READY_MS = 500
/** How long it may take to say what it counted, or to forget it. */
const ANSWER_MS = 3000
/** How long a worker may take to put a configuration into force. */
const APPLY_MS = 10_000
/** Beyond `drainTimeout`, for what a worker does at its end. */
const LAST_MS = 5000

/**
 * A service of several processes that share the callers' port; those that end are started again. Rejects with what the
 * first worker failed of that could not start.
 */
export async function openWorkers(
  count: number,
  config: Config,
  output: LogOutput,
  metrics: Metrics,
): Promise<Service> {
  let current = divided(config, count)
  /** What the workers counted that are gone. */
  let counted: MetricValues = []
  const latest = new Map<WorkerProcess, MetricValues>()
  // The workers tell; the least of all is shown.
  metrics.storeUp.set(1)

  const workers = Array.from({ length: count }, () =>
    keepWorker({
      config: () => current,
      output,
      onServing: (change) => metrics.workers.inc(change),
      onEnd(worker) {
        metrics.workerEnds.inc()
        const last = latest.get(worker)
        if (last === undefined) return
        latest.delete(worker)
        counted = onlyCounts(addUp([counted, last]))
      },
    }),
  )
  const serving = (): WorkerProcess[] => workers.flatMap(({ serving }) => serving() ?? [])
  const [address] = await Promise.all(workers.map(({ started }) => started)).catch((error: Error) => {
    for (const worker of workers) worker.kill()
    throw error
  })

  function anyone(): WorkerProcess {
    const [first] = serving()
    if (first === undefined) throw new Error('no worker serves')
    return first
  }
  /** A worker that is busy, or has ended, stays with what it said last: what was counted must not shrink. */
  async function hear(worker: WorkerProcess): Promise<void> {
    const values = await worker.ask('metrics', undefined, ANSWER_MS).catch(() => undefined)
    if (values !== undefined && serving().includes(worker)) latest.set(worker, values)
  }

  return {
    address: address!,
    async unready() {
      const asked = serving().map((worker) =>
        worker.ask('unready', undefined, READY_MS).catch(() => 'a worker does not answer'),
      )
      const reasons = (await Promise.all(asked)).filter((reason) => reason !== undefined)
      if (asked.length - reasons.length >= count / 2) return undefined
      return reasons[0] ?? 'too few workers serve'
    },
    async apply(next) {
      const config = divided(next, count)
      const [first] = serving()
      // What the first one refuses is in force nowhere: nor may that one take it later.
      await first?.give('apply', config, APPLY_MS).catch((error: Error) => {
        if (error instanceof Unanswered) first.kill()
        throw error
      })
      current = config
      // What it takes, all take; who does not is started again with it, and so is who ended meanwhile.
      const others = serving().filter((worker) => worker !== first)
      await Promise.all(
        others.map((worker) => worker.give('apply', config, APPLY_MS).catch(() => worker.kill())),
      )
    },
    async metrics() {
      await Promise.all(serving().map(hear))
      const own = await metrics.values()
      return await textOf(addUp([own, ...latest.values(), counted]))
    },
    usage: (client, signal) => abortable(anyone(), signal, (worker) => worker.ask('usage', client)),
    async reset(client, signal) {
      const worker = anyone()
      const freed = await abortable(worker, signal, () => worker.ask('reset', client))
      const others = serving().filter((other) => other !== worker)
      await Promise.allSettled(others.map((other) => other.ask('forget', undefined, ANSWER_MS)))
      return freed
    },
    async close(times) {
      const cuts = workers.map((worker) => worker.close(times, times.drainTimeoutMs + LAST_MS))
      return (await Promise.all(cuts)).reduce((sum, cut) => sum + cut, 0)
    },
  }
}

/** Asks a worker what may take long, and tells it when `signal` aborts meanwhile. */
async function abortable<T>(
  worker: WorkerProcess,
  signal: AbortSignal,
  ask: (worker: WorkerProcess) => Promise<T>,
): Promise<T> {
  const abort = (): void => void worker.ask('abort', undefined).catch(() => {})
  signal.addEventListener('abort', abort)
  try {
    return await ask(worker)
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** What of a configuration each of so many processes takes: under `onOutage: local` its part of every limit. */
function divided(config: Config, count: number): Config {
  const { store } = config
  if (store === 'memory') return config
  const { instances } = store
  return { ...config, store: { ...store, instances: instances && instances * count, processes: count } }
}
