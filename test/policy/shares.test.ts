import { describe, expect, test } from 'vitest'
import type { Quota } from '../../src/limit/quota.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { type Override, overrideKey } from '../../src/policy/overrides.ts'
import { quotasOf } from './quotas.ts'

const limit = (name: string, calls: number, rest: Partial<Limit> = {}): Limit => ({
  ...{ name, per: ['client'], limit: calls, windowMs: 60_000, shadow: false, changes: [] },
  ...rest,
})
const all = limit('all', 10)
const share = limit('share', 6, { counts: 'all' })
const sync = limit('sync', 1, { per: ['client', 'connection'] })

const shown = (quotas: readonly Quota[]) =>
  quotas.map(({ name, key, limit, shadowShares = [] }) => [
    ...[name, key, limit],
    ...shadowShares.map(({ name, key, limit }) => [name, key, limit]),
  ])
const applied = (limits: readonly Limit[], options: Parameters<typeof quotasOf>[2] = {}) =>
  shown(quotasOf(limits, { client: 'acme' }, { params: { connection: 'c' }, ...options }))
const overridden = (name: string, calls: number) => {
  const override: Override = {
    ...{ caller: [{ word: 'client', value: 'acme' }], name, limit: calls, setAt: 0 },
  }
  return { overrides: new Map([[overrideKey('p', override), override]]) }
}

describe('a share', () => {
  test('a share has the key of the limit that it counts', () => {
    expect(applied([share])).toEqual([['share', 'p:{acme}:all', 6]])
  })

  test('a share and the limit that it counts are one quota, at the place of the first, with the lower number', () => {
    const expected = [
      ['share', 'p:{acme}:all', 6],
      ['sync', 'p:{acme}:sync:c', 1],
    ]
    expect(applied([all, sync, share])).toEqual(expected)
    expect(applied([share, sync, all])).toEqual(expected)
    expect(applied([all, share, limit('least', 2, { counts: 'all' })])).toEqual([
      ['least', 'p:{acme}:all', 2],
    ])
  })

  test('a share has an override of its own, as has the limit that it counts', () => {
    expect(applied([all, share], overridden('share', 3))).toEqual([['share', 'p:{acme}:all', 3]])
    expect(applied([all, share], overridden('share', 30))).toEqual([['all', 'p:{acme}:all', 10]])
    expect(applied([share], overridden('share', 30))).toEqual([['share', 'p:{acme}:all', 30]])
    expect(applied([all, share], overridden('all', 5))).toEqual([['all', 'p:{acme}:all', 5]])
    expect(applied([share], overridden('all', 5))).toEqual([['share', 'p:{acme}:all', 6]])
  })

  test('a share has the client’s own limit, the claim and the changes of its name', () => {
    const clientLimits = new Map([['acme', new Map([['share', { limit: 2 }]])]])
    expect(applied([all, share], { clientLimits })).toEqual([['share', 'p:{acme}:all', 2]])
    const changing = { ...share, changes: [{ announcedAt: 0, fromAt: 5, limit: 4 }] }
    expect(applied([all, changing], { nowMs: 4 })).toEqual([['share', 'p:{acme}:all', 6]])
    expect(applied([all, changing], { nowMs: 5 })).toEqual([['share', 'p:{acme}:all', 4]])
    const claimed = { ...share, claim: { name: 'calls' } }
    const [quota] = quotasOf([all, claimed], { client: 'acme', claims: { calls: 3 } })
    expect(quota).toMatchObject({ name: 'share', limit: 3 })
  })

  test('a share in shadow only reads the counter of live limits', () => {
    const trial = { ...share, shadow: true }
    expect(applied([trial, all])).toEqual([['all', 'p:{acme}:all', 10, ['share', 'p:{acme}:all', 6]]])
    expect(applied([sync, trial])).toEqual([['sync', 'p:{acme}:sync:c', 1]])
    const live = limit('live', 8, { counts: 'all' })
    expect(applied([live, trial])).toEqual([['live', 'p:{acme}:all', 8, ['share', 'p:{acme}:all', 6]]])
    expect(applied([share, limit('shadow', 5, { shadow: true })])).toEqual([
      ['share', 'p:{acme}:all', 6],
      ['shadow', 'p:{acme}:shadow', 5],
    ])
  })
})
