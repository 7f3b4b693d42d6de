import { mergeActivity } from '../../admin/overview/activity.ts'
import { mergeMinutes } from '../../admin/overview/last-minute.ts'
import type { Config } from '../../config/config.ts'
import type { LogOutput } from '../../observe/log.ts'
import { countsOf, type Metrics, textOfAll } from '../../observe/metrics.ts'
import type { MetricsFormat, MetricValues } from '../../observe/open-metrics.ts'
import { mergeStatus } from '../../observe/status.ts'
import { agreedCaller } from '../../policy/found-caller.ts'
import { sum } from '../../runtime/merge.ts'
import type { Service } from '../service.ts'
import { superviseWorker, type WorkerProcess } from './supervisor.ts'
import type { Argument, CallName } from './worker.ts'

/** Maximum time for a worker to report its readiness: less than a probe waits. */
const READY_MS = 500
const APPLY_MS = 10_000

/**
 * Opens a service of several processes, and restarts those that exit. Rejects with the error of a
 * worker that did not start.
 */
export async function openWorkers(
  count: number,
  config: Config,
  output: LogOutput,
  metrics: Metrics,
): Promise<Service> {
  let current = ofWorker(config, count)
  const gathered = createGatheredMetrics(metrics)
  const workers = Array.from({ length: count }, () => superviseWorker(() => current, output, gathered.onExit))
  const serving = (): WorkerProcess[] => workers.flatMap((worker) => worker.serving() ?? [])
  const [address] = await Promise.all(workers.map(({ started }) => started)).catch((error) => {
    for (const worker of workers) void worker.close(false)
    throw error
  })

  const { callAll, first, scan } = createWorkerCalls(serving)

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
      const config = ofWorker({ ...next, log: current.log }, count)
      const [first] = serving()
      // If the first worker rejects it, it is applied nowhere: that worker must not apply it later either.
      await first?.configure(config, APPLY_MS).catch((error: Error) => {
        if (error.name === 'CallTimeout') first.kill()
        throw error
      })
      // From now on workers start with it, and a worker that fails to apply it is restarted.
      current = config
      const others = serving().filter((worker) => worker !== first)
      await Promise.all(others.map(({ configure, kill }) => configure(config, APPLY_MS).catch(kill)))
    },
    metrics: (format) => gathered.text(serving(), format),
    status: async () => mergeStatus(await callAll('status')),
    activity: async () => mergeActivity(await callAll('activity')),
    lastMinute: async () => mergeMinutes(await callAll('lastMinute')),
    shareSummary: async (sent) => await first().call('shareSummary', sent),
    events: async () => [...output.events(), ...(await callAll('events')).flat()],
    usage: (caller, signal) => scan(signal, (worker) => worker.call('usage', caller, Infinity)),
    async reset(caller, signal) {
      const result = await scan(signal, (worker) => worker.call('reset', caller, Infinity))
      await callAll('forgetCaller', caller)
      return result
    },
    findCaller: async (shown) => agreedCaller(await callAll('findCaller', shown)),
    findPart: async (shown) => agreedCaller(await callAll('findPart', shown)),
    setLimits: async (setting) => await first().call('setLimits', setting),
    overrides: async () => await first().call('overrides'),
    explain: async (question) => await first().call('explain', question),
    async setLogLevel(level) {
      // Also for workers that start later.
      current = { ...current, log: { ...current.log, level } }
      await callAll('setLogLevel', level)
    },
    async close(lameDuck) {
      return sum(await Promise.all(workers.map((worker) => worker.close(lameDuck))))
    },
  }
}

/** Creates the calls to the workers that serve now. */
function createWorkerCalls(serving: () => readonly WorkerProcess[]) {
  /**
   * Calls a function of each serving worker; returns the results without those of workers that fail
   * or do not answer in time.
   */
  async function callAll<Name extends CallName>(name: Name, argument?: Argument<Name>) {
    const results = await Promise.allSettled(serving().map((worker) => worker.call(name, argument)))
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  }
  function first(): WorkerProcess {
    const [worker] = serving()
    if (worker === undefined) throw new Error('no worker serves')
    return worker
  }
  /** Makes a call that may take long, and aborts it with `signal`. */
  async function scan<T>(signal: AbortSignal, call: (worker: WorkerProcess) => Promise<T>) {
    const worker = first()
    const abort = (): void => void worker.call('abort').catch(() => {})
    signal.addEventListener('abort', abort)
    return await call(worker).finally(() => signal.removeEventListener('abort', abort))
  }

  return { callAll, first, scan }
}

/** Gathers the metrics of this process and of its workers. Counters do not decrease if a worker exits. */
function createGatheredMetrics(metrics: Metrics) {
  /** Metrics of the workers that have exited. */
  let exited: MetricValues = []
  /** The last metrics of the workers that serve. */
  const latest = new Map<WorkerProcess, MetricValues>()
  return {
    onExit(worker: WorkerProcess): void {
      metrics.workerEnds.inc()
      exited = countsOf([exited, latest.get(worker) ?? []])
      latest.delete(worker)
    },
    async text(serving: readonly WorkerProcess[], format: MetricsFormat): Promise<string> {
      const calls = serving.map(async (worker) => latest.set(worker, await worker.call('metrics')))
      await Promise.allSettled(calls)
      return await textOfAll([await metrics.values(), ...latest.values(), exited], format)
    },
  }
}

/** Returns the configuration of one of `count` workers: under `onOutage: local`, with its part of every limit. */
function ofWorker(config: Config, count: number): Config {
  const { store } = config
  if (store === 'memory') return config
  const instances = store.instances && store.instances * count
  return { ...config, store: { ...store, instances, processes: count } }
}
