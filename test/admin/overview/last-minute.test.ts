import { afterEach, expect, it, vi } from 'vitest'
import { createLastMinute, mergeMinutes, showMinute } from '../../../src/admin/overview/last-minute.ts'
import { createMetrics, type Metrics } from '../../../src/observe/metrics.ts'

vi.useFakeTimers({ toFake: ['setInterval'] })
const lasting: { close(): void }[] = []
afterEach(() => {
  for (const one of lasting.splice(0)) one.close()
})

/** Creates the metrics of a process, and its last minute. */
function processWith() {
  const metrics = createMetrics()
  const lastMinute = createLastMinute(metrics)
  lasting.push(lastMinute)
  return { metrics, counts: lastMinute.counts }
}

/** Counts a request of a route. */
const countIn = (metrics: Metrics, match: string, ...values: readonly string[]): void =>
  metrics.seriesOf({ match }).requests.inc(...values)

it('counts the errors and the durations of the last minute, the most frequent error first', () => {
  const { metrics, counts } = processWith()
  for (const method of ['GET', 'POST', 'GET']) countIn(metrics, '/a', method, '429', 'gateway')
  countIn(metrics, '/a', 'GET', '200', 'upstream')
  countIn(metrics, '/b', 'GET', '502', 'gateway')
  for (const seconds of [0.0005, 0.002, 0.002, 0.4])
    metrics.upstreamSeconds.of({ upstream: 'data' }).observe(seconds)
  metrics.upstreamSeconds.of({ upstream: 'slow' }).observe(99)
  const shown = showMinute(counts())
  expect(shown.errors).toEqual([
    { route: '/a', code: '429', source: 'gateway', calls: 3 },
    { route: '/b', code: '502', source: 'gateway', calls: 1 },
  ])
  expect(shown.durations).toEqual([
    { kind: 'upstream', name: 'data', count: 4, p50Ms: 1.75, p99Ms: 490 },
    { kind: 'upstream', name: 'slow', count: 1, p50Ms: 30_000, p99Ms: 30_000 },
  ])

  // What came before the oldest of six samples is not counted.
  vi.advanceTimersByTime(60_000)
  countIn(metrics, '/b', 'GET', '502', 'gateway')
  expect(showMinute(counts())).toMatchObject({
    errors: [{ route: '/b', code: '502', source: 'gateway', calls: 1 }],
    durations: [],
  })
})

it('merges the counts of several processes, and all routes into one row of requests', () => {
  const [one, other] = [processWith(), processWith()]
  one.metrics.seriesOf({ match: '/a' }).seconds.observe(0.004)
  one.metrics.seriesOf({ match: '/b' }).seconds.observe(0.004)
  other.metrics.seriesOf({ match: '/b' }).seconds.observe(0.004)
  for (const { metrics } of [one, other]) countIn(metrics, '/a', 'GET', '404', 'upstream')
  const { errors, durations } = showMinute(mergeMinutes([one.counts(), other.counts()]))
  expect(errors).toMatchObject([{ calls: 2 }])
  expect(durations).toMatchObject([{ kind: 'requests', name: '', count: 3 }])
})
