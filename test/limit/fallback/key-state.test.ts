import fc from 'fast-check'
import { expect, it } from 'vitest'
import { KeyState } from '../../../src/limit/fallback/key-state.ts'
import type { Frame } from '../../../src/limit/memory/call-log.ts'
import type { Access, Quota } from '../../../src/limit/quota.ts'

const WINDOW_US = 1_000_000
const QUOTA: Quota = { name: 'x', key: 'p:{a}:x', limit: 1e6, windowMs: WINDOW_US / 1000, shadow: false }
const frameAt = (nowUs: number): Frame => ({
  ...{ nowUs, limit: QUOTA.limit, horizonUs: nowUs - WINDOW_US, windowUs: WINDOW_US, spanUs: 1 },
})
const accessOf = (key: string): Access => ({ key, windowMs: QUOTA.windowMs, isOfToken: true })

/** Counts own calls point by point. */
class NaiveCalls {
  points: { readonly atUs: number; readonly access: string | undefined; isSent: boolean }[] = []

  countSince(horizonUs: number, access?: string) {
    const counted = this.points.filter(
      (one) => one.atUs > horizonUs && (access === undefined || one.access === access),
    )
    const sent = counted.filter(({ isSent }) => isSent).length
    return counted.length === 0 ? undefined : { calls: counted.length - sent, sent }
  }

  /** Returns the instants of calls that began no access. */
  plainInstants(): readonly number[] {
    const ofAccess = new Set(this.points.flatMap(({ atUs, access }) => (access === undefined ? [] : atUs)))
    return [...new Set(this.points.map(({ atUs }) => atUs))].filter((atUs) => !ofAccess.has(atUs))
  }

  /** Gives the calls of an instant more points, or fewer; returns false if some of them were sent. */
  settle(atUs: number, points: number): boolean {
    const same = this.points.filter((one) => one.atUs === atUs)
    if (same.some(({ isSent }) => isSent)) return false
    const first = this.points.indexOf(same[0]!)
    const left = Array.from({ length: Math.max(0, same.length + points) }, () => ({ ...same[0]! }))
    this.points.splice(first, same.length, ...left)
    return true
  }
}

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('admit' as const),
      afterUs: fc.constantFrom(0, 300, 5000, 400_000),
      cost: fc.integer({ min: 1, max: 3 }),
      access: fc.constantFrom(undefined, 'one', 'two'),
    }),
  },
  fc.record({
    do: fc.constant('settle' as const),
    call: fc.nat(5),
    points: fc.integer({ min: -4, max: 4 }),
  }),
  fc.record({ do: fc.constantFrom('send' as const, 'merged' as const, 'unsure' as const, 'reset' as const) }),
)

it('counts the own calls of a key and of each access like a list of all points', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const state = new KeyState(QUOTA.key)
      const naive = new NaiveCalls()
      let nowUs = 10 * WINDOW_US
      let [number, sent] = [0, 0]
      for (const one of steps) {
        if (one.do === 'admit') {
          nowUs += one.afterUs
          const { cost, access } = one
          const quota = { ...QUOTA, cost, ...(access !== undefined && { access: accessOf(access) }) }
          state.admit(frameAt(nowUs), quota, 0)
          naive.points = naive.points.filter(({ atUs }) => atUs > nowUs - WINDOW_US)
          const atUs = nowUs
          naive.points.push(...Array.from({ length: cost }, () => ({ atUs, access, isSent: false })))
        } else if (one.do === 'settle') {
          const atUs = naive.plainInstants()[one.call]
          if (atUs !== undefined)
            expect(state.settleOwn(one.points, atUs, 0)).toBe(naive.settle(atUs, one.points))
        } else if (one.do === 'send') {
          const merge = state.send(++number)
          if (merge !== undefined) sent = merge.number
          // An unsure merge is sent again as it was.
          if (merge?.number === number) for (const point of naive.points) point.isSent = true
        } else if (one.do === 'reset') {
          state.reset()
          naive.points = []
        } else {
          state.onNoAnswer()
          const merged = one.do === 'merged' ? state.onMerged(sent) : []
          if (merged.length > 0) naive.points = naive.points.filter(({ isSent }) => !isSent)
        }
        for (const access of [undefined, 'one', 'two', 'none'])
          for (const horizonUs of [0, nowUs - WINDOW_US, nowUs - 1, nowUs]) {
            const counted = state.countSince(horizonUs, access)
            expect(counted && { calls: counted.calls, sent: counted.sent }).toEqual(
              naive.countSince(horizonUs, access),
            )
          }
      }
    }),
    { numRuns: 500 },
  )
})

it('has the same spread for all own calls, and another one only after they have left', () => {
  const state = new KeyState(QUOTA.key)
  const spreadAfter = (nowUs: number, spreadMs: number): number => {
    state.admit(frameAt(10 * WINDOW_US + nowUs), QUOTA, spreadMs)
    return state.spreadMs
  }
  expect(spreadAfter(0, 5)).toBe(5)
  expect(spreadAfter(1000, 20)).toBe(5)
  expect(spreadAfter(2 * WINDOW_US, 20)).toBe(20)
})

it('finds the calls of an access as fast among 64,000 own calls as among 1,000', () => {
  const stateOf = (calls: number): KeyState => {
    const state = new KeyState(QUOTA.key)
    for (let i = 0; i < calls; i++)
      state.admit(frameAt(10 * WINDOW_US + i), { ...QUOTA, access: accessOf(`token ${i}`) }, 0)
    return state
  }
  const [few, many] = [stateOf(1000), stateOf(64_000)]
  function costOf(state: KeyState): number {
    const before = process.cpuUsage()
    for (let i = 0; i < 2000; i++) state.countSince(0, `token ${i % 500}`)
    const { user, system } = process.cpuUsage(before)
    return user + system
  }
  let ratio = Infinity
  for (let i = 0; i < 4 && ratio > 8; i++) ratio = Math.min(ratio, costOf(many) / costOf(few))
  expect(ratio).toBeLessThan(8)
})
