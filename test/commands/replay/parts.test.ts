import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { LoggedCall } from '../../../src/commands/replay/formats/call.ts'
import { readAccessLine } from '../../../src/commands/replay/formats/sluice.ts'
import { passInOrder } from '../../../src/commands/replay/order.ts'
import { createReport } from '../../../src/commands/replay/report.ts'
import { line, type Logged, START } from './logs.ts'

const callOf = (members: Logged): LoggedCall => readAccessLine(line(members)) as LoggedCall

describe('the busiest minute', () => {
  const createCount = () => {
    const { count, report } = createReport({ limits: [], clients: [] })
    const calls = { a: callOf({ at: 0, client: 'a' }), b: callOf({ at: 0, client: 'b' }) }
    const decision = { admitted: true, allowances: [], cached: false, mode: 'store' } as const
    return {
      count: (client: 'a' | 'b', now: number) => count(calls[client], client, decision, now),
      busiestOf: (name: string) =>
        report(2).clients.find(({ client }) => client === name)?.busiestMinute ?? { calls: 0, from: '' },
    }
  }

  it('equals the result of counting every minute, for each client', () => {
    const gap = fc.oneof(fc.constant(0), fc.integer({ max: 2000, min: 1 }), fc.constantFrom(59_999, 60_000))
    fc.assert(
      fc.property(
        fc.array(fc.tuple(gap, fc.constantFrom('a', 'b')), { maxLength: 200, size: 'max' }),
        (steps) => {
          const { count, busiestOf } = createCount()
          const all = { a: [] as number[], b: [] as number[] }
          let now = START
          for (const [gapMs, client] of steps) {
            now += gapMs
            all[client].push(now)
            count(client, now)
          }
          for (const client of ['a', 'b'] as const) {
            const minutes = all[client].map((from) => ({
              calls: all[client].filter((at) => at >= from && at < from + 60_000).length,
              from: new Date(from).toISOString(),
            }))
            const max = Math.max(0, ...minutes.map(({ calls }) => calls))
            expect(busiestOf(client).calls).toBe(max)
            if (max > 0) expect(minutes).toContainEqual(busiestOf(client))
          }
        },
      ),
      { numRuns: 200 },
    )
  })

  it('the busiest minute is exact for a client with many calls', () => {
    const { count, busiestOf } = createCount()
    const found = Array.from({ length: 20 }, (_, thousand) => {
      for (let nth = 0; nth < 1000; nth++) count('a', (thousand * 1000 + nth) * 10)
      return busiestOf('a').calls
    })
    expect(found).toEqual(found.map((_, thousand) => Math.min((thousand + 1) * 1000, 6000)))
  })
})

describe('the order of calls', () => {
  const SORTED_CALLS = 50
  type Ended = readonly [at: number, lastsMs: number]
  /** Returns the decisions and ends of calls in the order in which they were passed on, the most buffered calls, and how many came late. */
  const ordered = async (...logs: readonly (readonly Ended[])[]) => {
    const passed: [number, number][] = []
    let [read, mostBuffered] = [0, 0]
    async function* callsOf(log: readonly Ended[]) {
      for (const [at, lastsMs] of log) {
        mostBuffered = Math.max(mostBuffered, read++ - passed.length)
        yield [callOf({ at, lastsMs })]
      }
    }
    const pass = ({ loggedAt }: LoggedCall, nowMs: number) => passed.push([nowMs - START, loggedAt - START])
    const late = await passInOrder(logs.map(callsOf), pass, SORTED_CALLS)
    return { passed, mostBuffered, late }
  }

  it('the order of calls is the order of their decisions, if the buffer is not exceeded', async () => {
    const gap = fc.integer({ min: 0, max: 300 })
    const lasts = fc.integer({ min: 0, max: 1000 })
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(gap, lasts), { maxLength: 200, size: 'max' }), async (steps) => {
        let end = 1000
        const calls = steps.map(([gapMs, lastsMs]) => [(end += gapMs) - lastsMs, lastsMs] as const)
        // No call is decided before one that ended so many calls earlier.
        fc.pre(
          calls.every(([at], i) =>
            calls.slice(0, -SORTED_CALLS).every((early, j) => j > i - SORTED_CALLS || early[0] <= at),
          ),
        )
        const sorted = calls.map(([at, lastsMs]) => [at, at + lastsMs]).toSorted(([a], [b]) => a! - b!)
        const { passed, late } = await ordered(calls)
        expect(passed).toEqual(sorted)
        expect(late).toEqual({ calls: 0, byMs: 0 })
      }),
    )
  })

  it('the order of calls is that of all logs, also if one begins after the end of another', async () => {
    const log = (...times: number[]) => times.map((at) => [at, 0] as const)
    const logs = [log(9000, 9500, 12_000), log(1, 4, 5, 6000), log(), log(2, 3, 4000, 8000, 9600)]
    const { passed, late } = await ordered(...logs)
    const expected = [1, 2, 3, 4, 5, 4000, 6000, 8000, 9000, 9500, 9600, 12_000]
    expect(passed.map(([at]) => at)).toEqual(expected)
    expect(late.calls).toBe(0)
  })

  it('moves a call that comes too late to the time of the last call that was passed on', async () => {
    const times = Array.from({ length: 2 * SORTED_CALLS }, (_, i) => i * 10)
    const { passed, late } = await ordered([...times.map((at) => [at, 0] as const), [400, 1300]])
    // Half of the calls were passed on before the last line was read.
    expect(passed[SORTED_CALLS]).toEqual([490, 1700])
    expect(passed.toSpliced(SORTED_CALLS, 1)).toEqual(times.map((at) => [at, at]))
    expect(late).toEqual({ calls: 1, byMs: 90 })
  })

  it('the order of calls is that of many logs in any order, each longer than the buffer', async () => {
    const days = Array.from({ length: 9 }, (_, day) =>
      Array.from({ length: SORTED_CALLS * 3 }, (_, n) => [day * 100_000 + n, 0] as const),
    )
    const { passed, late } = await ordered(...days.toReversed())
    expect(passed.map(([at]) => at)).toEqual(days.flat().map(([at]) => at))
    expect(late.calls).toBe(0)
  })

  it('refuses a log that goes back by more than a minute, further than it sorts', async () => {
    const log = (from: number) => Array.from({ length: SORTED_CALLS * 3 }, (_, n) => [from + n, 0] as const)
    await expect(ordered([...log(100_000), ...log(0)])).rejects.toThrow(/^the lines go back in time by 101 s/)
    const short = [...log(100_000).slice(0, 40), ...log(0).slice(0, 40)]
    expect((await ordered(short)).late.calls).toBe(0)
  })

  it('counts a call that took longer than the sorted calls at a later time, for any length', async () => {
    const times = Array.from({ length: 3 * SORTED_CALLS }, (_, n) => [n * 10_000, 0] as const)
    const end = times.at(-1)![0]
    const { passed, late } = await ordered([...times, [0, end]])
    expect(passed).toHaveLength(times.length + 1)
    expect(late).toEqual({ calls: 1, byMs: expect.any(Number) as number })
  })

  it('reads batches of more calls than a function has arguments', async () => {
    const calls = Array<LoggedCall>(200_000).fill(callOf({ at: 0 }))
    async function* inOneBatch() {
      yield calls
    }
    let passed = 0
    await passInOrder([inOneBatch()], () => passed++)
    expect(passed).toBe(calls.length)
  })

  it('buffers at most twice the calls that it keeps for sorting', async () => {
    const { passed, mostBuffered } = await ordered(Array.from({ length: 200 }, (_, at) => [at, 0] as const))
    expect(passed).toHaveLength(200)
    expect(mostBuffered).toBeGreaterThanOrEqual(SORTED_CALLS)
    expect(mostBuffered).toBeLessThanOrEqual(SORTED_CALLS * 2)
  })
})

it('a call of an old log counts as decided when it came', () => {
  const { decidedAt } = callOf({ at: 0, lastsMs: 40, decidedAt: undefined })
  expect(decidedAt).toBe(START - 2)
})

it('the time of a decision is used only if it is within the clock difference of its line', () => {
  const decidedAt = (at: unknown) =>
    callOf({ at: 0, lastsMs: 40, durationMs: 50, decidedAt: at }).decidedAt - START
  for (const at of [-60_010, -10, 0.125, 40, 60_040]) expect(decidedAt(START + at)).toBeCloseTo(at, 3)
  for (const at of [START * 1e6, START / 1000, START - 60_011, START + 60_041, 0, -1, null, `${START}`])
    expect(decidedAt(at)).toBe(-10)
})

it('an empty client counts as missing', () => {
  expect(callOf({ at: 0, client: '' }).client).toBeUndefined()
})

it.for([
  ['began before 1970', { durationMs: 1e300, decidedAt: undefined }],
  ['ended before 1970', { time: '-000001-01-01T00:00:00.000Z' }],
] as const)('a request that %s cannot be read', ([, members]) => {
  expect(readAccessLine(line({ at: 0, ...members }))).toEqual({ unreadable: expect.any(String) })
})
