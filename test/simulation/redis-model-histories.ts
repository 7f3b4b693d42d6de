import * as fc from 'fast-check'
import {
  CHARGE_SCRIPT,
  MERGE_SCRIPT,
  REGISTER_SCRIPT,
  RENEW_SCRIPT,
  SETTLE_SCRIPT,
} from '../../src/limit/redis/scripts.ts'
import { clocked } from '../limit/subjects.ts'

export type Command = readonly [name: string, ...args: (string | number)[]]

const CLOCKED_REGISTER = REGISTER_SCRIPT.replace("redis.call('TIME')", "{ 0, redis.call('GET', '{1}clock') }")
export const START = 1_700_000_000_000_000

/** The flag of own calls; after its numbers comes the place of a mark in KEYS. */
const OWN = 4

const keys = fc.constantFrom('{1}a', '{1}b', '{1}c')
const limit = fc.oneof(fc.integer({ min: 0, max: 12 }), fc.constantFrom(100, 1000, 1001, 5000))
const window = fc.constantFrom(60_000_000, 61_000_000, 3_600_000_000)
/** A shadow limit, a calendar period, own calls, or none of these, with their numbers. */
const kind = fc.oneof(
  { weight: 6, arbitrary: fc.constant([0] as const) },
  { weight: 2, arbitrary: fc.constantFrom([1] as const, [OWN, 2, 3, 9] as const, [8] as const) },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.constantFrom(2, 3), fc.integer({ min: START - 90_000_000, max: START })),
  },
)
const limited = fc.tuple(keys, limit, window, kind).map(([key, ...rest]) => [key, ...rest.flat()] as const)
/** Calls at once, their leases, calls of the gateway beside them, and 1 for a shadow limit. */
const atOnce = fc.tuple(
  fc.constantFrom('{1}d', '{1}e'),
  fc.integer({ min: 0, max: 5 }),
  window,
  fc.constantFrom(0, 0, 2),
  fc.constantFrom(0, 0, 1),
)
const decision = fc
  .record({
    charging: fc.constantFrom(1, 1, 1, 0),
    limits: fc.array(limited, { maxLength: 3 }),
    atOnce: fc.array(atOnce, { maxLength: 2 }),
  })
  .filter(({ limits, atOnce }) => limits.length + atOnce.length > 0)
/** Leases by their numbers, to be renewed or ended. */
const leases = fc.record({
  key: fc.constantFrom('{1}d', '{1}e'),
  ids: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 4 }),
  lengthUs: window,
  isRenewal: fc.boolean(),
})
/** Own calls at instants before the history's clock; the number of a merge may come again. */
const merge = fc.record({
  number: fc.integer({ min: 1, max: 30 }),
  limited: fc.tuple(keys, limit, window, fc.constantFrom(0, START - 30_000_000)),
  together: fc.constantFrom(0, 0, 5_000_000, -1),
  calls: fc.array(fc.tuple(fc.nat(70_000_000), fc.integer({ min: 1, max: 20 })), { maxLength: 6 }),
})
/** Calls that are settled, at instants before the history's clock; the number may come again. */
const settlement = fc.record({
  number: fc.integer({ min: 1, max: 30 }),
  settled: fc.array(
    fc.record({
      key: keys,
      agoUs: fc.oneof(fc.constantFrom(0, 70_000, 140_000), fc.nat(70_000_000)),
      rangeUs: fc.constantFrom(0, 0, 50_000, 3_000_000),
      lateUs: fc.constantFrom(0, 60_000, 70_000_000),
      points: fc.integer({ min: -20, max: 20 }),
    }),
    { minLength: 1, maxLength: 4 },
  ),
})
const step = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 3_000_000 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 90_000_000 }) },
  { weight: 1, arbitrary: fc.integer({ min: -70_000_000, max: 0 }) },
  { weight: 1, arbitrary: fc.integer({ min: -4_000_000_000, max: 4_000_000_000 }) },
)
const charge = fc.tuple(step, fc.array(decision, { minLength: 1, maxLength: 3 }), fc.nat(20))
const register = fc.tuple(step, fc.constantFrom('g1', 'g2', 'g3'))
const damage = fc.tuple(keys, fc.constantFrom('', 'x', 'y'.repeat(38), 'z'.repeat(51)))
/** An event of a history. */
const event = fc.oneof(
  { weight: 20, arbitrary: charge.map((charge) => ({ charge })) },
  { weight: 4, arbitrary: fc.tuple(step, merge).map((merge) => ({ merge })) },
  { weight: 6, arbitrary: fc.tuple(step, settlement).map((settlement) => ({ settlement })) },
  { weight: 4, arbitrary: fc.tuple(step, leases).map((leases) => ({ leases })) },
  { weight: 2, arbitrary: register.map((register) => ({ register })) },
  { weight: 1, arbitrary: damage.map((damage) => ({ damage })) },
  { weight: 1, arbitrary: keys.map((gone) => ({ gone })) },
)

type Event = typeof event extends fc.Arbitrary<infer T> ? T : never

/** Histories of calls of all scripts, as commands. The scripts' clock is a key. */
export const histories: fc.Arbitrary<readonly Command[]> = fc
  .array(event, { minLength: 1, maxLength: 25 })
  .map(commandsOf)

function commandsOf(history: readonly Event[]): Command[] {
  let now = START
  let lastLease = 0
  const commands: Command[] = []
  const tick = (us: number) => commands.push(['SET', '{1}clock', (now += us)])
  for (const event of history) {
    if ('charge' in event) {
      const [step, decisions, repeats] = event.charge
      const names = decisions.flatMap(({ limits }) => limits.map(([key]) => key))
      const hasOwn = decisions.some(({ limits }) => limits.some(([, , , flags]) => flags === OWN))
      const leaseKeys = decisions.flatMap(({ atOnce }) => atOnce.map(([key]) => key))
      const all = [...names, ...leaseKeys, ...(hasOwn ? ['{1}a~merged'] : [])]
      for (let i = 0; i <= repeats; i++) {
        tick(i === 0 ? step : 70_000)
        const leases = `${now}:g:${++lastLease}`
        const rules = decisions.flatMap(({ charging, limits, atOnce }) => {
          const rule = [
            charging + (atOnce.length > 0 ? 2 : 0),
            ...limits.flatMap(([, ...rule]) => (rule[2] === OWN ? [...rule, all.length] : rule)),
          ].join(' ')
          if (atOnce.length === 0) return [rule]
          return [rule, atOnce.flatMap(([, ...rule]) => rule).join(' '), charging === 1 ? leases : '']
        })
        const script = clocked(CHARGE_SCRIPT)
        commands.push(['EVAL', script, all.length, ...all, now + 1000, 0, names.length, ...rules])
      }
    } else if ('merge' in event) {
      const [step, { number, limited, together, calls }] = event.merge
      const [key, ...counted] = limited
      tick(step)
      const instants = calls
        .toSorted(([a], [b]) => b - a)
        .flatMap(([ago, count]) => [now - ago, count, together === 0 ? 0 : 3])
      const names = [`${key}~merged`, key, `${key}~access`]
      const rest = [number, now + 1000, ...counted, together, ...instants]
      commands.push(['EVAL', clocked(MERGE_SCRIPT), names.length, ...names, ...rest])
    } else if ('settlement' in event) {
      const [step, { number, settled }] = event.settlement
      tick(step)
      const names = ['{1}~settled', ...new Set(settled.map(({ key }) => key))]
      const rest = settled.flatMap(({ key, agoUs, rangeUs, lateUs, points }) => {
        const earliest = now - agoUs
        return [names.indexOf(key) + 1, earliest, earliest + rangeUs, lateUs, points]
      })
      const params = [names.length, ...names, number, now + 1000, 60_000, ...rest]
      commands.push(['EVAL', clocked(SETTLE_SCRIPT), ...params])
    } else if ('leases' in event) {
      const [step, { key, ids, lengthUs, isRenewal }] = event.leases
      tick(step)
      const names = ids.map((id) => `${START}:g:${id}`)
      const renewed = names.flatMap((name) => [1, name, lengthUs])
      if (isRenewal) commands.push(['EVAL', clocked(RENEW_SCRIPT), 1, key, now + 1000, ...renewed])
      else commands.push(['ZREM', key, ...names])
    } else if ('register' in event) {
      tick(event.register[0])
      const names = ['{1}~gateways', '{1}~since', '{1}~seen', '{1}~watched']
      commands.push(['EVAL', CLOCKED_REGISTER, names.length, ...names, event.register[1], 10_000])
    } else if ('damage' in event) {
      commands.push(['SET', ...event.damage])
    } else {
      commands.push(['UNLINK', event.gone])
    }
  }
  for (const key of [
    '{1}a',
    '{1}b',
    '{1}c',
    '{1}a~access',
    '{1}b~access',
    '{1}a~merged',
    '{1}~settled',
    '{1}~since',
    '{1}~seen',
  ])
    commands.push(['GET', key])
  for (const key of ['{1}d', '{1}e']) commands.push(['ZRANGE', key, 0, -1], ['TYPE', key])
  return commands
}
