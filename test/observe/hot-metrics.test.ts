import fc from 'fast-check'
import { Counter, Histogram, Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { createHotCounter } from '../../src/observe/hot-counter.ts'
import { createHotHistogram } from '../../src/observe/hot-histogram.ts'

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

it('shows a series that was declared once, with 0 until it counts', async () => {
  const registry = new Registry()
  const counter = createHotCounter(registry, {
    name: 'calls_total',
    help: 'Calls.',
    labelNames: ['code', 'source'],
  })
  const route = counter.under({ route: '/a' }, { upstream: 'data' })
  route.declare([['200', 'upstream'], ['429']])
  // Another route with these labels, or the same one after a reload.
  route.declare([['429'], ['502', 'gateway']])
  route.declare([['200', 'upstream'], ['429']])
  counter.under({ route: '/b' }, {}).declare([['429']])
  const shown = async () =>
    (await registry.metrics()).split('\n').filter((line) => line.startsWith('calls_total'))
  const others = [
    'calls_total{route="/a",code="200",source="upstream",upstream="data"} 0',
    'calls_total{route="/a",code="502",source="gateway",upstream="data"} 0',
    'calls_total{route="/b",code="429"} 0',
  ]
  const refused = 'calls_total{route="/a",code="429",upstream="data"}'
  expect((await shown()).toSorted()).toEqual([...others, `${refused} 0`].toSorted())
  expect(counter.series()).toEqual([])
  route.inc('429')
  route.inc('429')
  expect((await shown()).toSorted()).toEqual([...others, `${refused} 2`].toSorted())
  expect(counter.series()).toEqual([{ labels: { route: '/a', code: '429', upstream: 'data' }, count: 2 }])
})
