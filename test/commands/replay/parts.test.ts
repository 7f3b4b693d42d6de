import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createOrder, merge, readAccessLine } from '../../../src/commands/replay/logs.ts'
import { createBusiest } from '../../../src/commands/replay/report.ts'
import { line, START } from './logs.ts'

describe('the busiest minute', () => {
  it('equals the result of counting every minute, for each client', () => {
    const gap = fc.oneof(fc.constant(0), fc.integer({ max: 2000, min: 1 }), fc.constantFrom(59_999, 60_000))
    fc.assert(
      fc.property(
        fc.array(fc.tuple(gap, fc.constantFrom('a', 'b')), { maxLength: 200, size: 'max' }),
        (steps) => {
          const update = createBusiest()
          const found = { a: { calls: 0, fromMs: 0 }, b: { calls: 0, fromMs: 0 } }
          const all = { a: [] as number[], b: [] as number[] }
          let now = START
          for (const [gapMs, client] of steps) {
            now += gapMs
            all[client].push(now)
            update({ client, busiest: found[client] }, now)
          }
          for (const client of ['a', 'b'] as const) {
            const minutes = all[client].map((from) => ({
              calls: all[client].filter((at) => at >= from && at < from + 60_000).length,
              fromMs: from,
            }))
            const max = Math.max(0, ...minutes.map(({ calls }) => calls))
            expect(found[client].calls).toBe(max)
            if (max > 0) expect(minutes).toContainEqual(found[client])
          }
        },
      ),
      { numRuns: 200 },
    )
  })

  it('is exact for a client with many calls', () => {
    const update = createBusiest()
    for (let nth = 0; nth < 20_000; nth++) {
      const last = { calls: 0, fromMs: 0 }
      update({ client: 'a', busiest: last }, nth * 10)
      expect(last.calls).toBe(Math.min(nth + 1, 6000))
    }
  })
})

it('logs are merged by the times of their lines', async () => {
  async function* log(...times: number[]) {
    for (const at of times) yield readAccessLine(line({ at, lastsMs: 0 }))!
  }
  const taken: number[] = []
  const logs = [log(1, 4, 5, 9), log(), log(2, 3, 6, 7, 8, 10)]
  await merge(logs, ({ loggedAt }) => taken.push(loggedAt - START))
  expect(taken).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
})

describe('the order of calls', () => {
  const [WINDOW_MS, MAX_CALLS] = [1000, 50]
  /** Returns the decisions and ends of calls in the order in which they were passed on, and how many came late. */
  const ordered = (calls: readonly (readonly [at: number, lastsMs: number])[]) => {
    const passed: [number, number][] = []
    const pass = ({ loggedAt }: { loggedAt: number }, nowMs: number) =>
      passed.push([nowMs - START, loggedAt - START])
    const order = createOrder(pass, WINDOW_MS, MAX_CALLS)
    for (const [at, lastsMs] of calls) order.push(readAccessLine(line({ at, lastsMs }))!)
    const before = passed.length
    order.end()
    return { passed, before, late: order.late }
  }

  it('is the order of their decisions, if neither the buffer nor the window is exceeded', () => {
    const gap = fc.integer({ min: 0, max: 300 })
    const lasts = fc.integer({ min: 0, max: WINDOW_MS })
    fc.assert(
      fc.property(fc.array(fc.tuple(gap, lasts), { maxLength: 200, size: 'max' }), (steps) => {
        let end = WINDOW_MS
        const calls = steps.map(([gapMs, lastsMs]) => [(end += gapMs) - lastsMs, lastsMs] as const)
        // Fewer calls at a time than are buffered.
        fc.pre(calls.every(([at], i) => i < MAX_CALLS || at - calls[i - MAX_CALLS]![0] > 2 * WINDOW_MS))
        const sorted = calls.map(([at, lastsMs]) => [at, at + lastsMs]).toSorted(([a], [b]) => a! - b!)
        const { passed, late } = ordered(calls)
        expect(passed).toEqual(sorted)
        expect(late).toEqual({ calls: 0, byMs: 0 })
      }),
    )
  })

  it('moves a call that comes too late to the time of the last call that was passed on', () => {
    const { passed, late } = ordered([
      [0, 0],
      [500, 0],
      [1600, 0],
      [400, 1300],
    ])
    expect(passed).toEqual([
      [0, 0],
      [500, 500],
      [500, 1700],
      [1600, 1600],
    ])
    expect(late).toEqual({ calls: 1, byMs: 100 })
  })

  it('buffers at most a tenth more calls than its maximum', () => {
    const { passed, before } = ordered(Array.from({ length: 200 }, (_, at) => [at, 0] as const))
    expect(passed).toHaveLength(200)
    expect(200 - before).toBeLessThanOrEqual(MAX_CALLS * 1.1)
  })
})

it('a call of an old log counts as decided when it came', () => {
  const { decidedAt } = readAccessLine(line({ at: 0, lastsMs: 40, decidedAt: undefined }))!
  expect(decidedAt).toBe(START - 2)
})

it('the time of a decision is used only if it is within the clock difference of its line', () => {
  const decidedAt = (at: unknown) =>
    readAccessLine(line({ at: 0, lastsMs: 40, durationMs: 50, decidedAt: at }))!.decidedAt - START
  for (const at of [-60_010, -10, 0.125, 40, 60_040]) expect(decidedAt(START + at)).toBeCloseTo(at, 3)
  for (const at of [START * 1e6, START / 1000, START - 60_011, START + 60_041, 0, -1, null, `${START}`])
    expect(decidedAt(at)).toBe(-10)
})

it('an empty client counts as missing', () => {
  expect(readAccessLine(line({ at: 0, client: '' }))!.client).toBeUndefined()
})

it.for([
  ['began before 1970', { durationMs: 1e300, decidedAt: undefined }],
  ['ended before 1970', { time: '-000001-01-01T00:00:00.000Z' }],
  ['ended in a year of five digits', { time: '+275760-09-13T00:00:00.000Z' }],
] as const)('a request that %s is ignored', ([, members]) => {
  expect(readAccessLine(line({ at: 0, ...members }))).toBeUndefined()
})
