import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createBusiest } from '../../../src/commands/replay/busiest.ts'
import { createHeap } from '../../../src/commands/replay/heap.ts'
import { createOrder, merge } from '../../../src/commands/replay/in-order.ts'
import { createProgress } from '../../../src/commands/replay/progress.ts'
import { readAccessLine } from '../../../src/commands/replay/logged-call.ts'
import { line, START } from './logs.ts'

describe('the busiest minute', () => {
  it('is the one that a look at every minute finds, for each client', () => {
    const gap = fc.oneof(fc.constant(0), fc.integer({ max: 2000, min: 1 }), fc.constantFrom(59_999, 60_000))
    fc.assert(
      fc.property(
        fc.array(fc.tuple(gap, fc.constantFrom('a', 'b')), { maxLength: 200, size: 'max' }),
        (steps) => {
          const note = createBusiest()
          const found = { a: { calls: 0, fromMs: 0 }, b: { calls: 0, fromMs: 0 } }
          const all = { a: [] as number[], b: [] as number[] }
          let now = START
          for (const [gapMs, client] of steps) {
            now += gapMs
            all[client].push(now)
            note(client, now, found[client])
          }
          for (const client of ['a', 'b'] as const) {
            const minutes = all[client].map((from) => ({
              calls: all[client].filter((at) => at >= from && at < from + 60_000).length,
              fromMs: from,
            }))
            const most = Math.max(0, ...minutes.map(({ calls }) => calls))
            expect(found[client].calls).toBe(most)
            if (most > 0) expect(minutes).toContainEqual(found[client])
          }
        },
      ),
      { numRuns: 200 },
    )
  })

  it('is exact of a client that makes many calls in it', () => {
    const note = createBusiest()
    for (let nth = 0; nth < 20_000; nth++) {
      const last = { calls: 0, fromMs: 0 }
      note('a', nth * 10, last)
      expect(last.calls).toBe(Math.min(nth + 1, 6000))
    }
  })
})

it('logs are merged by the times of their lines', async () => {
  async function* log(...batches: number[][]) {
    for (const times of batches) yield times.map((at) => readAccessLine(line({ at, lastsMs: 0 }))!)
  }
  const taken: number[] = []
  const logs = [log([], [1, 4], [5, 9]), log(), log([2, 3, 6], [], [7, 8, 10])]
  await merge(logs, ({ loggedAt }) => taken.push(loggedAt - START))
  expect(taken).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
})

it('a heap gives out the lowest first, and of those alike the first', () => {
  fc.assert(
    fc.property(
      fc.array(fc.option(fc.integer({ min: 0, max: 9 }), { freq: 3 }), { maxLength: 100, size: 'max' }),
      (steps) => {
        const heap = createHeap<number>()
        const model: [number, number][] = []
        for (const [nth, at] of steps.entries()) {
          if (at !== null) {
            heap.push(at, nth)
            model.push([at, nth])
          } else if (model.length > 0) {
            model.sort(([a, first], [b, second]) => a - b || first - second)
            expect(heap.lowest).toBe(model[0]![0])
            expect(heap.pop()).toBe(model.shift()![1])
          }
          expect(heap.size).toBe(model.length)
        }
      },
    ),
  )
  expect(createHeap().lowest).toBe(Infinity)
})

it('calls wait for a minute or until too many do, and not longer', () => {
  const passed: number[] = []
  const order = createOrder((call, nowMs) => passed.push(nowMs - START, call.loggedAt - START), {
    longestMs: 1000,
    mostCalls: 3,
  })
  const take = (at: number, lastsMs: number) => order.take(readAccessLine(line({ at, lastsMs }))!)
  take(0, 0)
  take(500, 0)
  take(900, 100)
  expect(passed).toEqual([])
  take(1001, 0)
  expect(passed).toEqual([0, 0])
  take(1002, 0)
  expect(passed).toEqual([0, 0, 500, 500])
  take(400, 610)
  expect(passed).toEqual([0, 0, 500, 500, 500, 1010])
  expect(order.late()).toEqual({ calls: 1, byMs: 100 })
  order.end()
  expect(passed.slice(6)).toEqual([900, 1000, 1001, 1001, 1002, 1002])
})

it('of an old log, a call is taken to be decided when it came', () => {
  const { decidedAt } = readAccessLine(line({ at: 0, lastsMs: 40, decidedAt: undefined }))!
  expect(decidedAt).toBe(START - 2)
})

it('a decision is believed to be as near to its line as clocks are to each other, and no nearer', () => {
  const decidedAt = (at: unknown) =>
    readAccessLine(line({ at: 0, lastsMs: 40, durationMs: 50, decidedAt: at }))!.decidedAt - START
  for (const at of [-60_010, -10, 0.125, 40, 60_040]) expect(decidedAt(START + at)).toBeCloseTo(at, 3)
  for (const at of [START * 1e6, START / 1000, START - 60_011, START + 60_041, 0, -1, null, `${START}`])
    expect(decidedAt(at)).toBe(-10)
})

it.for([
  ['began before 1970', { durationMs: 1e300, decidedAt: undefined }],
  ['ended before 1970', { time: '-000001-01-01T00:00:00.000Z' }],
  ['ended in a year of five digits', { time: '+275760-09-13T00:00:00.000Z' }],
] as const)('a request that %s is none of the access log', ([, members]) => {
  expect(readAccessLine(line({ at: 0, ...members }))).toBeUndefined()
})

describe('the progress', () => {
  const drawn = (isTTY: boolean, total: number | undefined, columns = 80): string[] => {
    const written: string[] = []
    const progress = createProgress(
      { isTTY, columns, write: (text) => written.push(String(text)) > 0 },
      total,
    )
    progress.at(512 * 1024, 2000)
    progress.at(600 * 1024, 2001)
    progress.end()
    return written
  }

  it('is a bar on a terminal, drawn a few times a second and taken away at the end', () => {
    expect(drawn(true, 2 * 1024 ** 2)).toEqual([
      expect.stringMatching(/\[######-{18}\] {3}25% {2}512\.0kB of 2\.0MB {2}\d+s left {2}2000 lines$/),
      '\r\u001B[K',
    ])
  })

  it('tells of a pipe how much was read, and fits the terminal', () => {
    expect(drawn(true, undefined)[0]).toBe('\r\u001B[K512.0kB  2000 lines')
    expect(drawn(true, 2 * 1024 ** 2, 50)[0]).toHaveLength(4 + 49)
  })

  it('writes nothing anywhere else', () => {
    expect(drawn(false, 100)).toEqual([])
  })
})
