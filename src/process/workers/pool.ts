import type { Config } from '../../config/schema.ts'
import { mergeActivity, NO_ACTIVITY } from '../../observe/activity/values.ts'
import type { LogOutput } from '../../observe/log.ts'
import { countsOf, type Metrics, type MetricValues, textOf, valuesOf } from '../../observe/metrics.ts'
import type { LogLevel, Service } from '../service.ts'
import { superviseWorker } from './supervisor.ts'
import { CallTimeout, type WorkerProcess } from './worker-process.ts'

/** How long a worker may take to say that it is ready: less than a probe waits. */
const READY_MS = 500
/** How long it may take to return its metrics, or to drop its cache. */
const ANSWER_MS = 3000
/** How long it may take to put a configuration into force. */
const APPLY_MS = 10_000

/** Opens a service of several processes; those that exit are restarted. Rejects if one could not start, with its error. */
export async function openWorkers(
  count: number,
  config: Config,
  output: LogOutput,
  metrics: Metrics,
): Promise<Service> {
  let { level } = config.log
  const ofWorkers = (next: Config): Config => divided({ ...next, log: { ...next.log, level } }, count)
  let current = ofWorkers(config)
  /** What the workers that are gone have counted; and the last values of the others. */
  let counted: MetricValues = []
  const latest = new Map<WorkerProcess, MetricValues>()
  // The least of all is shown; 1 leaves it to the workers.
  metrics.storeUp.set(1)

  const workers = Array.from({ length: count }, () => superviseWorker(() => current, output, onExit))
  function onExit(worker: WorkerProcess): void {
    metrics.workerEnds.inc()
    counted = countsOf([counted, latest.get(worker) ?? []])
    latest.delete(worker)
  }
  const serving = (): WorkerProcess[] => workers.flatMap((worker) => worker.serving() ?? [])
  const [address] = await Promise.all(workers.map(({ started }) => started)).catch((error: Error) => {
    for (const worker of workers) worker.kill()
    throw error
  })

  /** Returns the worker that acts for operators. */
  function first(): WorkerProcess {
    const [worker] = serving()
    if (worker === undefined) throw new Error('no worker serves')
    return worker
  }
  /** Makes a call that may take long, and stops it when `signal` aborts. */
  async function scan<T>(signal: AbortSignal, call: (worker: WorkerProcess) => Promise<T>): Promise<T> {
    const worker = first()
    const abort = (): void => void worker.call('abort').catch(() => {})
    signal.addEventListener('abort', abort)
    return await call(worker).finally(() => signal.removeEventListener('abort', abort))
  }
  /** A worker that is busy, or has exited, keeps its last values: what was counted must not shrink. */
  async function collect(worker: WorkerProcess): Promise<void> {
    const values = await worker.call('metrics', undefined, ANSWER_MS).catch(() => undefined)
    if (values !== undefined && serving().includes(worker)) latest.set(worker, values)
  }

  async function collectAll(): Promise<readonly MetricValues[]> {
    await Promise.all(serving().map(collect))
    metrics.workers.set(serving().length)
    return [await metrics.values(), ...latest.values(), counted]
  }

  async function setLogLevel(next: LogLevel): Promise<void> {
    level = next
    // Also for workers that are started later.
    current = { ...current, log: { ...current.log, level } }
    await Promise.allSettled(serving().map((worker) => worker.call('setLogLevel', level, ANSWER_MS)))
  }

  return {
    address: address!,
    async notReadyReason() {
      const calls = serving().map((worker) =>
        worker.call('notReadyReason', undefined, READY_MS).catch(() => 'a worker does not answer'),
      )
      const reasons = (await Promise.all(calls)).filter((reason) => reason !== undefined)
      if (calls.length - reasons.length >= count / 2) return undefined
      return reasons[0] ?? 'too few workers serve'
    },
    async apply(next) {
      const config = ofWorkers(next)
      const [first] = serving()
      // If the first rejects it, it comes into force nowhere: nor may that worker apply it later.
      await first?.configure(config, APPLY_MS).catch((error: Error) => {
        if (error instanceof CallTimeout) first.kill()
        throw error
      })
      // From now on a restarted worker begins with it, and one that fails to apply it is restarted.
      current = config
      const later = serving().filter((worker) => worker !== first)
      await Promise.all(later.map((worker) => worker.configure(config, APPLY_MS).catch(() => worker.kill())))
      // It was switched meanwhile.
      if (level !== config.log.level) await setLogLevel(level)
    },
    metrics: async () => await textOf(await collectAll()),
    async metricValues() {
      const calls = serving().map((worker) =>
        worker.call('ownMetrics', undefined, ANSWER_MS).catch(() => latest.get(worker) ?? []),
      )
      metrics.workers.set(calls.length)
      return await valuesOf([await metrics.ownValues(), ...(await Promise.all(calls)), counted])
    },
    async activity() {
      const calls = serving().map((worker) =>
        worker.call('activity', undefined, ANSWER_MS).catch(() => NO_ACTIVITY),
      )
      return mergeActivity(await Promise.all(calls))
    },
    usage: (client, signal) => scan(signal, (worker) => worker.call('usage', client)),
    async reset(client, signal) {
      const freed = await scan(signal, (worker) => worker.call('reset', client))
      await Promise.allSettled(serving().map((worker) => worker.call('forget', client, ANSWER_MS)))
      return freed
    },
    setLimits: async (setting) => await first().call('setLimits', setting, ANSWER_MS),
    overrides: async () => await first().call('overrides', undefined, ANSWER_MS),
    explain: async (question) => await first().call('explain', question, ANSWER_MS),
    setLogLevel,
    async close(times) {
      const cuts = await Promise.all(workers.map((worker) => worker.close(times)))
      return cuts.reduce((sum, cut) => sum + cut, 0)
    },
  }
}

/** Returns what each of so many processes serves: under `onOutage: local`, its part of every limit. */
function divided(config: Config, count: number): Config {
  const { store } = config
  if (store === 'memory') return config
  const { instances } = store
  return { ...config, store: { ...store, instances: instances && instances * count, processes: count } }
}
