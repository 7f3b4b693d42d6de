import { PerformanceObserver } from 'node:perf_hooks'
import { collectDefaultMetrics, type Registry } from 'prom-client'

/**
 * Gauges with the name of a counter, which `promtool check metrics` rejects, and the histogram of
 * garbage collections: Node.js would make an object for each, 70 a second under load, and most of
 * these reach the old space: +2 % processor time (`npm run bench:gate`).
 */
const OMITTED = [
  ...['handles', 'requests', 'resources'].map((kind) => `nodejs_active_${kind}_total`),
  'nodejs_gc_duration_seconds',
]

/**
 * Registers prom-client's metrics of the process and of Node.js without those omitted, and without
 * an observer of collections.
 */
export function collectNodeMetrics(register: Registry): void {
  const { observe } = PerformanceObserver.prototype
  PerformanceObserver.prototype.observe = () => {}
  collectDefaultMetrics({ register })
  PerformanceObserver.prototype.observe = observe
  for (const name of OMITTED) register.removeSingleMetric(name)
}
