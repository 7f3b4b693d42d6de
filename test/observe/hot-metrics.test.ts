import fc from 'fast-check'
import { Counter, Histogram, Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { createHotHistogram, createHotCounter } from '../../src/observe/hot-metrics.ts'

const BUCKETS = [0.001, 0.01, 0.5, 1, 30]
const described = { name: 'call_seconds', help: 'Duration of calls.' }

it('shows any durations as a histogram of prom-client does', async () => {
  const seconds = fc.oneof(fc.constantFrom(...BUCKETS, 0, 30.1), fc.double({ min: 0, max: 60, noNaN: true }))
  const calls = fc.array(fc.tuple(seconds, fc.constantFrom('data', 'identity')), { maxLength: 30 })
  await fc.assert(
    fc.asyncProperty(calls, fc.boolean(), async (observed, labelled) => {
      const [ours, theirs] = [new Registry(), new Registry()]
      const labelNames = labelled ? ['upstream'] : []
      const mine = createHotHistogram(ours, described, BUCKETS)
      // Without a label, zeros are shown before the first observation.
      if (!labelled) mine.of()
      const histogram = new Histogram({ ...described, buckets: BUCKETS, labelNames, registers: [theirs] })
      for (const [duration, upstream] of observed) {
        if (labelled) {
          mine.of({ upstream }).observe(duration)
          histogram.observe({ upstream }, duration)
        } else {
          mine.of().observe(duration)
          histogram.observe(duration)
        }
      }
      expect(await ours.metrics()).toBe(await theirs.metrics())
      const [values] = (await ours.getMetricsAsJSON()) as { values: object[] }[]
      const [wanted] = (await theirs.getMetricsAsJSON()) as { values: { exemplar?: unknown }[] }[]
      // As serialised for another process.
      expect({ ...values, values: JSON.parse(JSON.stringify(values!.values)) }).toEqual({
        ...wanted,
        values: wanted!.values.map((value) => ({ ...value, exemplar: undefined })),
      })
    }),
    { numRuns: 50 },
  )
})

it('shows counts as a counter of prom-client does, at each read', async () => {
  const [ours, theirs] = [new Registry(), new Registry()]
  const description = { name: 'calls_total', help: 'Calls.', labelNames: ['route', 'code'] }
  const mine = createHotCounter(ours, description)
  const counter = new Counter({ ...description, registers: [theirs] })
  for (let i = 0; i < 3; i++) {
    mine.inc('/*', '200')
    counter.inc({ route: '/*', code: '200' })
    mine.inc('/x', '429')
    counter.inc({ route: '/x', code: '429' })
    expect(await ours.metrics()).toBe(await theirs.metrics())
  }
})
