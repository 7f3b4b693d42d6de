import type { Metric, Registry } from 'prom-client'
import { loadPart } from './prom-client.ts'

/**
 * The modules of prom-client whose metrics are registered. Not among them are gauges with the name
 * of a counter, which `promtool check metrics` rejects; the processor time, whose module loads
 * OpenTelemetry; and the histogram of garbage collections: Node.js would make an object for each, 70
 * a second under load, which mostly reach the old space: +2 % processor time (`npm run bench:gate`).
 */
const FILES = ['processMaxFileDescriptors', 'processOpenFileDescriptors']
const MEMORY = ['heapSizeAndUsed', 'heapSpacesSizeAndUsed', 'osMemoryHeap']
const OTHERS = ['eventLoopLag', 'processStartTime', 'version']

/**
 * Gauges that show the highest value of several processes: added up or averaged, with the idle
 * supervisor, they would hide a worker that is at its bound.
 */
const HIGHEST = [
  'process_open_fds',
  'process_max_fds',
  ...['mean', 'p50', 'p90', 'p99'].map((part) => `nodejs_eventloop_lag_${part}_seconds`),
]

/** Registers metrics of the process and of Node.js. */
export function collectNodeMetrics(registry: Registry): void {
  for (const name of [...FILES, ...MEMORY, ...OTHERS])
    (loadPart(`metrics/${name}`) as (registry: Registry) => void)(registry)
  for (const name of HIGHEST)
    (registry.getSingleMetric(name) as unknown as { aggregator: string }).aggregator = 'max'
  const before = process.cpuUsage()
  function count(name: string, what: string, read: (usage: NodeJS.CpuUsage) => number): void {
    const help = `Total ${what} CPU time spent in seconds.`
    const values = () => [{ labels: {}, value: read(process.cpuUsage(before)) / 1e6 }]
    const get = async () => ({ name, help, type: 'counter', aggregator: 'sum', values: values() })
    registry.registerMetric({ name, get } as unknown as Metric)
  }
  count('process_cpu_user_seconds_total', 'user', ({ user }) => user)
  count('process_cpu_system_seconds_total', 'system', ({ system }) => system)
  count('process_cpu_seconds_total', 'user and system', ({ user, system }) => user + system)
}
