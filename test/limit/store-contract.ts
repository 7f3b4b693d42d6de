import assert from 'node:assert/strict'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { longestWait } from '../../src/limit/decision.ts'
import { callerKeys } from '../../src/policy/caller-keys.ts'
import { parseCaller } from '../../src/policy/counted-caller.ts'
import { createCalendar, UNITS_MS } from '../../src/policy/calendar.ts'
import type { Limit } from '../../src/policy/limit.ts'
import type { Quota } from '../../src/limit/quota.ts'
import type { Allowance, Charge, Store } from '../../src/limit/store.ts'
import { quickly } from '../helpers/runs.ts'
import { NaiveCount } from './naive-count.ts'

/** A store on a clock that the test sets. */
export interface Subject {
  readonly store: Store
  /** Sets the clock, in microseconds since the epoch, for keys with this hash tag. */
  setClock(us: number, tag: string): Promise<void> | void
  /** Resolves when calls are settled. */
  merged?(): Promise<unknown>
  close(): Promise<void>
}

export interface ContractOptions {
  /** Random traces to run, each of some dozens of decisions; default 6, or 3 in `npm test`, which suffices for wrappers of a store. */
  readonly runs?: number
  /** Traces run at a time, each on its own store, since a batch has one clock; default 1. */
  readonly atOnce?: number
  /** True if the store refuses from a cache, and then reports only the cached limits. */
  readonly remembers?: boolean
  /** True if the store's clock never goes back. */
  readonly monotonic?: boolean
}

const START_US = 1_750_000_000_000_000
/** A Friday at noon, before a leap year. */
const NEW_YEAR_US = Date.UTC(2027, 11, 31, 12) * 1000
let runs = 0

/** Tests the contract of every store and wrapper of a store. */
export function storeContract(
  name: string,
  open: () => Promise<Subject>,
  options: ContractOptions = {},
): void {
  const { runs: numRuns = quickly(3, 6), atOnce = 1 } = options
  describe(`${name}, as every store,`, () => {
    let subjects: readonly Subject[] = []
    let subject: Subject
    beforeAll(async () => {
      subjects = await Promise.all(Array.from({ length: atOnce }, open))
      subject = subjects[0]!
    })
    afterAll(async () => {
      await Promise.all(subjects.map((subject) => subject.close()))
    })

    /** Runs a trace on its own keys, and compares every answer with the judge's. */
    async function assertAgreement(steps: readonly Step[], subject: Subject, startUs: number): Promise<void> {
      const tag = `trace${runs++}`
      const naive = new NaiveCount()
      /** Calls that may be settled. */
      const charged: [Quota, Charge][] = []
      /** Calls in progress, with the limits of calls at once that had room for them. */
      const inProgress: [readonly Quota[], string][] = []
      let nowUs = startUs
      for (const step of steps) {
        nowUs += step.afterUs
        await subject.setClock(nowUs, tag)
        const isOnce = ({ name }: Quota) =>
          name !== 'token2' || step.quotas.every(({ name }) => name !== 'token1')
        const quotas = step.quotas
          .filter(isOnce)
          .map((quota) => keyed(quota, `contract:{${tag}}:${quota.name}`))
        for (const [quota, charge] of charged.splice(step.settled.first, step.settled.count)) {
          if (naive.isUnsure(quota, charge.chargedUs!)) continue
          const points = step.settled.used - (quota.cost ?? 1)
          void subject.store.settle(charge, [{ quota, points }])
          naive.settle(quota, charge.chargedUs!, points)
          // Before the clock is set again.
          await subject.merged?.()
        }
        for (const [quotas, lease] of inProgress.splice(0, step.ended)) {
          subject.store.release(quotas, lease)
          naive.release(quotas)
          await subject.merged?.()
        }
        if (!step.charging) {
          const allowances = await subject.store.peek(quotas)
          const rooms = allowances.map(({ admitted }) => admitted)
          assertAllowances(allowances, naive.decide(quotas, nowUs, false, rooms).verdicts, nowUs)
          continue
        }
        const charges = await Promise.all(
          Array.from({ length: step.times }, async () => subject.store.charge(quotas)),
        )
        // Charges of one batch are decided in order, unless some are refused from a cache.
        const instants = charges.slice(0, 16).map(({ decidedAt }) => decidedAt!)
        if (options.remembers !== true) {
          assert.deepEqual(
            instants,
            instants.toSorted((a, b) => a - b),
          )
        }
        for (const charge of charges) {
          const { admitted: was, allowances, decidedAt, lease } = charge
          // A cached refusal lacks limits; they are taken to have room.
          const rooms = quotas.map(
            ({ name }) => allowances.find((allowance) => allowance.name === name)?.admitted ?? true,
          )
          const { admitted, verdicts } = naive.decide(quotas, nowUs, true, rooms)
          assert.equal(was, admitted)
          assertBetween(decidedAt!, [nowUs / 1000, nowUs / 1000], 1.01)
          if (admitted || options.remembers !== true) assertAllowances(allowances, verdicts, nowUs)
          else assertWaits(allowances, verdicts, quotas, nowUs)
          if (lease !== undefined) inProgress.push([quotas.filter((_, i) => allowances[i]!.admitted), lease])
          for (const [i, quota] of admitted ? quotas.entries() : [])
            if (isSettled(quota) && allowances[i]!.admitted) charged.push([quota, charge])
        }
      }
    }

    function assertAllowances(
      allowances: readonly Allowance[],
      verdicts: ReturnType<NaiveCount['decide']>['verdicts'],
      nowUs: number,
    ): void {
      assert.equal(allowances.length, verdicts.length)
      for (const [i, { room, remaining, growsAfterUs }] of verdicts.entries()) {
        const allowance = allowances[i]!
        assert(room.includes(allowance.admitted))
        assertBetween(allowance.remaining, remaining, 0)
        const growsAfterMs = growsAfterUs.map((us) => us / 1000) as [number, number]
        assertBetween(allowance.resetAfterMs, growsAfterMs, 0.0015)
        const canPass = allowance.admitted && allowance.remaining > 0
        assert.equal(allowance.retryAfterMs, canPass ? 0 : allowance.resetAfterMs)
        assertBetween(allowance.resetAt - allowance.resetAfterMs, [nowUs / 1000, nowUs / 1000], 1.01)
      }
    }

    /** Asserts that a refusal has the longest wait, and the right answer for each limit that it has. */
    function assertWaits(
      allowances: readonly Allowance[],
      verdicts: ReturnType<NaiveCount['decide']>['verdicts'],
      quotas: readonly Quota[],
      nowUs: number,
    ): void {
      const live = verdicts.filter((_, i) => !quotas[i]!.shadow)
      const sure = live.filter(({ room }) => !room.includes(true))
      const likely = live.filter(({ room }) => room.includes(false))
      const longest = longestWait(allowances)!
      // Within 1.5 µs, the precision of epoch milliseconds in a double.
      assertBetween(
        longest.retryAfterMs,
        [
          Math.max(0, ...sure.map(({ growsAfterUs: [min] }) => min / 1000)),
          Math.max(...likely.map(({ growsAfterUs: [, max] }) => max / 1000)),
        ],
        0.0015,
      )
      assertBetween(longest.resetAt - longest.retryAfterMs, [nowUs / 1000, nowUs / 1000], 1.01)
      for (const { name, admitted, shadow } of allowances) {
        const { room } = verdicts[quotas.findIndex((quota) => quota.name === name)]!
        assert(shadow || room.includes(admitted))
      }
    }

    function assertBetween(value: number, [min, max]: readonly [number, number], off: number): void {
      assert(min - off <= value && value <= max + off, `${min} <= ${value} <= ${max}`)
    }

    async function assertProperty(
      steps: fc.Arbitrary<Step[]>,
      count: number,
      startUs = START_US,
    ): Promise<void> {
      const traces = fc.array(steps, { minLength: atOnce, maxLength: atOnce })
      const property = fc.asyncProperty(traces, async (all) => {
        await Promise.all(all.map((steps, i) => assertAgreement(steps, subjects[i]!, startUs)))
      })
      // The other traces of a failed run go on, so that a shorter one would fail for other reasons.
      await fc.assert(property, { numRuns: Math.ceil(count / atOnce), endOnFailure: atOnce > 1 })
    }

    function trace(
      limits: readonly number[],
      times: readonly number[],
      length: number,
      names: readonly string[] = ['a', 'b', 'c'],
      costs: readonly (number | undefined)[] = [undefined],
      used: readonly number[] = [0, 0, 1, 2],
    ) {
      const windowMs = fc.constantFrom(20_000, 20_000, 30_000, 60_000, 60_000, 3_600_000, 86_400_000)
      const quotas = fc.subarray([...names], { minLength: 1, maxLength: 3 }).chain((names) =>
        fc.tuple(
          ...names.map((name) =>
            fc.record({
              name: fc.constant(name),
              key: fc.constant(''),
              limit: fc.constantFrom(...limits),
              windowMs,
              shadow: name === 'c' || name === 'atOnce3' ? fc.boolean() : fc.constant(false),
              cost: fc.constantFrom(...costs),
            }),
          ),
        ),
      )
      const forward = [
        0, 0, 0, 1, 999, 1000, 20_000, 60_000, 10_000_000, 19_999_999, 20_000_000, 20_000_001, 60_000_000,
        3_600_000_000, 86_400_000_000,
      ]
      const back =
        options.monotonic === true ? [] : [-1, -1500, -10_000_000, -30_000_000, -61_000_000, -3_600_000_000]
      const afterUs = fc.oneof(
        { weight: 8, arbitrary: fc.constantFrom(...forward) },
        { weight: 3, arbitrary: fc.nat(70_000_000) },
        { weight: 1, arbitrary: fc.constantFrom(0, ...back) },
      )
      const step = fc.record({
        afterUs,
        quotas,
        charging: fc.integer({ min: 0, max: 9 }).map((die) => die > 0),
        settled: fc.record({
          first: fc.constantFrom(0, 0, -1, -3),
          count: fc.constantFrom(0, 0, 1, 3),
          used: fc.constantFrom(...used),
        }),
        ended: fc.constantFrom(0, 0, 1, 3),
        times: fc.constantFrom(...times),
      })
      return fc.array(step, { minLength: 1, maxLength: length, size: 'max' })
    }

    test('answers as a naive log does, with ties, gaps, boundaries, backward clocks and limits that change', async () => {
      await assertProperty(trace([0, 1, 2, 3, 7, 50], [1, 1, 2, 5], 60), numRuns)
    }, 60_000)

    test('answers as a naive log does if calls share slots of a thousandth of the window', async () => {
      await assertProperty(trace([3, 1000, 1001, 1300, 5000], [1, 20, 150, 400], 12), numRuns / 20)
    }, 60_000)

    test('answers as a naive log does with calendar periods, accesses, and calls that are settled', async () => {
      const names = ['a', 'c', ...Object.keys(CALENDARS), 'token1', 'token2', 'soon']
      await assertProperty(trace([0, 1, 2, 3, 7], [1, 1, 2, 5], 60, names), numRuns)
    }, 60_000)

    test('answers as a naive log does while a week, a month, a quarter and a year end', async () => {
      const names = ['a', 'week', 'month', 'quarter', 'year', 'token1']
      await assertProperty(trace([0, 1, 2, 3, 7], [1, 1, 2, 5], 60, names), numRuns, NEW_YEAR_US)
    }, 60_000)

    test('answers as a naive log does if calls have costs', async () => {
      const names = ['a', 'b', 'c', 'minute', 'token1', 'soon']
      const [costs, used] = [
        [1, 1, 2, 3, 20],
        [0, 1, 2, 5, 30],
      ]
      await assertProperty(trace([0, 2, 3, 7, 50], [1, 1, 2, 5], 60, names, costs, used), numRuns)
    }, 60_000)

    test('answers as a naive log does if calls with costs share slots', async () => {
      const limits = [1000, 1001, 1300, 5000]
      const [costs, used] = [
        [1, 4, 300, 1200],
        [0, 1, 5, 250, 2000],
      ]
      await assertProperty(trace(limits, [1, 20, 150], 12, ['a', 'b', 'c'], costs, used), numRuns / 20)
    }, 60_000)

    test('answers as a naive count does if limits bound calls at once', async () => {
      const names = ['a', 'c', 'minute', 'atOnce1', 'atOnce2', 'atOnce3']
      await assertProperty(trace([0, 1, 2, 3, 7], [1, 1, 2, 5], 60, names), numRuns)
    }, 60_000)

    /** Returns a quota with a new key. */
    function own(limit: number, windowMs: number, shadow = false): Quota & { readonly tag: string } {
      const tag = `own${runs++}`
      return { name: 'own', tag, key: `contract:{${tag}}:own`, limit, windowMs, shadow }
    }

    test('admits a call at the microsecond at which the oldest call leaves the window, not earlier', async () => {
      const quota = own(2, 20_000)
      await subject.setClock(START_US, quota.tag)
      await subject.store.charge([quota])
      await subject.setClock(START_US + 5_000_000, quota.tag)
      await subject.store.charge([quota])
      await subject.setClock(START_US + 19_999_999, quota.tag)
      const refused = await subject.store.charge([quota])
      expect(refused.admitted).toBe(false)
      expect(refused.allowances[0]!.retryAfterMs).toBeCloseTo(0.001, 4)
      await subject.setClock(START_US + 20_000_000, quota.tag)
      expect((await subject.store.charge([quota])).admitted).toBe(true)
    })

    test('admits a call with a cost when enough points have left, and a cheaper one meanwhile', async () => {
      const quota = own(10, 20_000)
      const charge = async (cost: number) => {
        const { admitted, allowances } = await subject.store.charge([{ ...quota, cost }])
        const { remaining, retryAfterMs } = allowances[0]!
        return { admitted, remaining, retryAfterMs: Math.round(retryAfterMs) }
      }
      await subject.setClock(START_US, quota.tag)
      expect(await charge(4)).toEqual({ admitted: true, remaining: 6, retryAfterMs: 0 })
      await subject.setClock(START_US + 1_000_000, quota.tag)
      expect(await charge(3)).toEqual({ admitted: true, remaining: 3, retryAfterMs: 0 })
      await subject.setClock(START_US + 2_000_000, quota.tag)
      expect(await charge(4)).toEqual({ admitted: false, remaining: 3, retryAfterMs: 18_000 })
      expect(await charge(8)).toEqual({ admitted: false, remaining: 3, retryAfterMs: 19_000 })
      expect(await charge(3)).toEqual({ admitted: true, remaining: 0, retryAfterMs: 18_000 })
      expect(await charge(1)).toEqual({ admitted: false, remaining: 0, retryAfterMs: 18_000 })
      await subject.setClock(START_US + 20_000_000, quota.tag)
      expect(await charge(4)).toEqual({ admitted: true, remaining: 0, retryAfterMs: 1000 })
    })

    test('charges all quotas or none', async () => {
      const wide = own(10, 20_000)
      const narrow = { ...own(1, 20_000), key: `contract:{${wide.tag}}:narrow`, name: 'narrow' }
      await subject.setClock(START_US, wide.tag)
      await subject.store.charge([wide, narrow])
      for (let i = 0; i < 5; i++) expect((await subject.store.charge([wide, narrow])).admitted).toBe(false)
      expect((await subject.store.peek([wide]))[0]!.remaining).toBe(9)
    })

    test('never refuses for a shadow limit, and charges it only while it has room', async () => {
      const live = own(10, 20_000)
      const shadow = { ...own(2, 20_000, true), key: `contract:{${live.tag}}:shadow`, name: 'shadow' }
      await subject.setClock(START_US, live.tag)
      const rooms: boolean[] = []
      for (let i = 0; i < 4; i++) {
        const { admitted, allowances } = await subject.store.charge([live, shadow])
        expect(admitted).toBe(true)
        rooms.push(allowances[1]!.admitted)
      }
      expect(rooms).toEqual([true, true, false, false])
      expect((await subject.store.peek([shadow]))[0]!.remaining).toBe(0)
    })

    test('says which shadow shares would have refused, after the limits, and charges nothing for them', async () => {
      const live = own(6, 20_000)
      const share = { ...own(3, 20_000, true), key: live.key, name: 'share', cost: 2 }
      const other = { ...own(10, 20_000), key: `contract:{${live.tag}}:other`, name: 'other' }
      const proof = { ...own(100, 20_000), key: `contract:{${live.tag}}:proof`, name: 'proof', isProof: true }
      const quotas = [{ ...live, cost: 2, shadowShares: [share] }, other, proof]
      await subject.setClock(START_US, live.tag)
      const told: unknown[] = []
      for (let i = 0; i < 4; i++) {
        const { admitted, allowances } = await subject.store.charge(quotas)
        const [first, second, last] = allowances
        expect([first!.name, second!.name, last!.name, last!.shadow]).toEqual([
          live.name,
          'other',
          'share',
          true,
        ])
        told.push([admitted, last!.used, last!.limit, last!.remaining, last!.admitted])
      }
      expect(told).toEqual([
        [true, 2, 3, 1, true],
        [true, 4, 3, 0, false],
        [true, 6, 3, 0, false],
        [false, 6, 3, 0, false],
      ])
      expect((await subject.store.peek([live]))[0]!.used).toBe(6)
    })

    test('keeps the calls already counted when a limit is lowered and raised again', async () => {
      const quota = own(1500, 60_000)
      await subject.setClock(START_US, quota.tag)
      const first = await Promise.all(Array.from({ length: 700 }, async () => subject.store.charge([quota])))
      expect(first.every(({ admitted }) => admitted)).toBe(true)
      const lowered = await subject.store.charge([{ ...quota, limit: 5 }])
      expect(lowered.admitted).toBe(false)
      expect((await subject.store.peek([{ ...quota, limit: 2000 }]))[0]!.remaining).toBe(1300)
    })

    test('never blocks a key for longer than a window, also if the clock goes back by days', async () => {
      const quota = own(3, 20_000)
      await subject.setClock(START_US, quota.tag)
      for (let i = 0; i < 3; i++) await subject.store.charge([quota])
      if (options.monotonic === true) return
      const back = START_US - 2 * 86_400_000_000
      await subject.setClock(back, quota.tag)
      expect((await subject.store.charge([quota])).admitted).toBe(false)
      await subject.setClock(back + 10_000_000, quota.tag)
      expect((await subject.store.charge([quota])).admitted).toBe(false)
      await subject.setClock(back + 20_000_000, quota.tag)
      expect((await subject.store.charge([quota])).admitted).toBe(true)
    })

    test('settles a call whose period is not over, since the clock was set back', async () => {
      if (options.monotonic === true) return
      const { tag, ...plain } = own(3, 60_000)
      const quota = { ...plain, calendar: CALENDARS['minute']! }
      const endUs = CALENDARS['minute']!.periodAt(START_US / 1000).endMs * 1000
      await subject.setClock(START_US, tag)
      const charge = await subject.store.charge([quota])
      await subject.setClock(endUs - 1, tag)
      expect((await subject.store.peek([quota]))[0]!.remaining).toBe(2)
      await subject.setClock(START_US, tag)
      void subject.store.settle(charge, [{ quota, points: -1 }])
      await subject.merged?.()
      expect((await subject.store.peek([quota]))[0]!.remaining).toBe(3)
    })

    test('charges a settled call what it used, at its own instant', async () => {
      const { tag, ...quota } = own(100, 20_000)
      const charge = async (atUs: number, cost: number) => {
        await subject.setClock(atUs, tag)
        return subject.store.charge([{ ...quota, cost }])
      }
      const settle = async (made: Charge, reserved: number, used: number) => {
        void subject.store.settle(made, [{ quota: { ...quota, cost: reserved }, points: used - reserved }])
        await subject.merged?.()
      }
      const first = await charge(START_US, 40)
      const second = await charge(START_US + 5_000_000, 40)
      expect((await charge(START_US + 6_000_000, 40)).admitted).toBe(false)
      await settle(second, 40, 10)
      const third = await charge(START_US + 6_000_000, 40)
      expect(third).toMatchObject({ admitted: true, allowances: [{ used: 90 }] })
      // What it used beyond its reserve is owed: the next calls wait until enough has left.
      await settle(third, 40, 70)
      expect(await charge(START_US + 7_000_000, 1)).toMatchObject({
        admitted: false,
        allowances: [{ used: 120, remaining: 0, retryAfterMs: 13_000 }],
      })
      expect(await charge(START_US + 7_000_000, 25)).toMatchObject({ allowances: [{ retryAfterMs: 18_000 }] })
      await settle(first, 40, 0)
      expect(await charge(START_US + 7_000_000, 21)).toMatchObject({ allowances: [{ retryAfterMs: 18_000 }] })
      expect(await charge(START_US + 7_000_000, 20)).toMatchObject({ admitted: true })
    })

    test('counts a million points and more as exactly as one', async () => {
      const { tag, ...plain } = own(1_000_000_000, 60_000)
      const quota = { ...plain, calendar: CALENDARS['month']!, windowMs: UNITS_MS.month, cost: 300_000_000 }
      await subject.setClock(START_US, tag)
      const [first, second] = [await subject.store.charge([quota]), await subject.store.charge([quota])]
      void subject.store.settle(first, [{ quota, points: 123_456_789 - quota.cost }])
      await subject.merged?.()
      void subject.store.settle(second, [{ quota, points: 2 ** 40 - quota.cost }])
      await subject.merged?.()
      const [allowance] = await subject.store.peek([quota])
      expect(allowance).toMatchObject({ used: 2 ** 40 + 123_456_789, remaining: 0 })
    })

    test('counts on when more points were charged than the numbers of a log can hold', async () => {
      const { tag, ...plain } = own(2 ** 46, 20_000)
      const quota = { ...plain, cost: 2 ** 42 }
      const admittedAt: number[] = []
      for (let second = 0; second < 120; second++) {
        await subject.setClock(START_US + second * 1_000_000, tag)
        const { admitted, allowances } = await subject.store.charge([quota])
        if (admitted) admittedAt.push(second)
        const inWindow = admittedAt.filter((at) => at > second - 20).length
        expect([admitted, allowances[0]!.used]).toEqual([admittedAt.at(-1) === second, inWindow * 2 ** 42])
        expect(inWindow <= 16 && (admitted || inWindow === 16)).toBe(true)
      }
    })

    test('settles a call of the last microsecond of a period', async () => {
      const { tag, ...plain } = own(100, 60_000)
      const quota = { ...plain, calendar: CALENDARS['minute']!, cost: 40 }
      const period = quota.calendar.periodAt(START_US / 1000)
      await subject.setClock(period.endMs * 1000 - 1, tag)
      const charge = await subject.store.charge([quota])
      void subject.store.settle(charge, [{ quota, points: -30 }])
      await subject.merged?.()
      expect((await subject.store.peek([quota]))[0]!.used).toBe(10)
    })

    test('settles no call that has left the window, or was reset', async () => {
      const { tag, ...plain } = own(100, 20_000)
      const quota = { ...plain, cost: 30 }
      await subject.setClock(START_US, tag)
      const charge = await subject.store.charge([quota])
      await subject.store.reset({ named: [quota.key], glob: undefined, matches: (key) => key === quota.key })
      await subject.setClock(START_US + 1_000_000, tag)
      const later = await subject.store.charge([quota])
      for (const made of [charge, charge]) {
        void subject.store.settle(made, [{ quota, points: -30 }])
        await subject.merged?.()
      }
      expect((await subject.store.peek([quota]))[0]!.used).toBe(30)
      await subject.setClock(START_US + 25_000_000, tag)
      void subject.store.settle(later, [{ quota, points: 1000 }])
      await subject.merged?.()
      expect((await subject.store.peek([quota]))[0]!.used).toBe(0)
    })

    test('lists and frees exactly the keys of one client, also those that do not begin with it', async () => {
      const limits: Limit[] = [
        { name: 'first', per: ['client'], limit: 3, windowMs: 60_000, shadow: false, changes: [] },
        { name: 'last', per: ['ip', 'client'], limit: 3, windowMs: 60_000, shadow: false, changes: [] },
      ]
      const me = `me${runs++}`
      const mine = [`p:{${me}}:first`, `p:{10.0.0.1}:last:${me}`, `p:{10.0.0.2}:last:${me}`]
      const others = [
        `p:{${me}2}:first`,
        `p:{${me}}:last:other`,
        `p:{10.0.0.1}:last:x${me}`,
        `q:{${me}}:first`,
      ]
      for (const key of [...mine, ...others]) {
        await subject.setClock(START_US, key.slice(key.indexOf('{') + 1, key.indexOf('}')))
        await subject.store.charge([{ name: 'x', key, limit: 3, windowMs: 60_000, shadow: false }])
      }
      const filter = callerKeys(limits, 'p', parseCaller(me))
      expect((await subject.store.keys(filter)).toSorted()).toEqual(mine.toSorted())
      expect(await subject.store.reset(filter)).toBe(3)
      expect(await subject.store.keys(filter)).toEqual([])
      const remaining = await subject.store.peek(
        others.map((key) => ({ name: 'x', key, limit: 3, windowMs: 60_000, shadow: false })),
      )
      expect(remaining.map(({ remaining }) => remaining)).toEqual(others.map(() => 2))
    })

    test('ignores calls outside the window in force, after a longer window was shortened', async () => {
      const long = own(100_000, 86_400_000)
      await subject.setClock(START_US, long.tag)
      await Promise.all(Array.from({ length: 60 }, async () => subject.store.charge([long])))
      await subject.setClock(START_US + 60_000_000, long.tag)
      expect((await subject.store.charge([{ ...long, limit: 50, windowMs: 60_000 }])).admitted).toBe(true)
    })

    test('ignores the slots of a higher limit once they have left the window', async () => {
      const high = own(2000, 86_400_000)
      await subject.setClock(START_US, high.tag)
      await Promise.all(Array.from({ length: 1200 }, async () => subject.store.charge([high])))
      await subject.setClock(START_US + 86_399_999_999, high.tag)
      expect((await subject.store.charge([{ ...high, limit: 1000 }])).admitted).toBe(false)
      await subject.setClock(START_US + 86_400_000_000, high.tag)
      expect((await subject.store.charge([{ ...high, limit: 1000 }])).admitted).toBe(true)
    })
  })
}

interface Step {
  readonly afterUs: number
  readonly quotas: readonly Quota[]
  readonly charging: boolean
  readonly times: number
  /** Calls that are settled first, and the points that each used; `first` is negative for the latest ones. */
  readonly settled: { readonly first: number; readonly count: number; readonly used: number }
  /** Calls in progress that end first. */
  readonly ended: number
}

/** Names of limits, and the calendar or the access that each always has. */
const CALENDARS: Readonly<Record<string, ReturnType<typeof createCalendar>>> = {
  minute: createCalendar({ unit: 'minute', timezone: 'UTC' }),
  hour: createCalendar({ unit: 'hour', timezone: 'Australia/Lord_Howe' }),
  day: createCalendar({ unit: 'day', timezone: 'Australia/Sydney' }),
  month: createCalendar({ unit: 'month', timezone: 'America/Sao_Paulo' }),
  week: createCalendar({ unit: 'week', timezone: 'Asia/Kathmandu', firstDay: 'saturday' }),
  quarter: createCalendar({ unit: 'quarter', timezone: 'America/Sao_Paulo' }),
  year: createCalendar({ unit: 'year', timezone: 'Australia/Sydney' }),
}
const TOGETHER = new Set(['token1', 'token2', 'soon', 'day'])

/** True for a limit whose calls may be settled: calls of an access may have been free. */
const isSettled = ({ access, isConcurrent = false }: Quota): boolean => access === undefined && !isConcurrent

/** Returns a quota with its key, and its access. */
function keyed(quota: Quota, key: string): Quota {
  const { name, windowMs } = quota
  // The leases outlast every trace.
  if (name.startsWith('atOnce')) return { ...quota, key, isConcurrent: true, windowMs: 3650 * 86_400_000 }
  const calendar = CALENDARS[name]
  const period = calendar && { calendar, windowMs: UNITS_MS[calendar.unit] }
  const own = { ...quota, key, ...period }
  if (!TOGETHER.has(name)) return own
  const access = { key: `${key}~` }
  if (!name.startsWith('token')) return { ...own, access: { ...access, windowMs: 5000, isOfToken: false } }
  // Two tokens share a limit.
  return { ...own, key: key.replace(/\d$/, ''), access: { ...access, windowMs, isOfToken: true } }
}
