import { expect, it } from 'vitest'
import { type Pattern, parsePattern } from '../../src/downstream/pattern.ts'
import type { Quota } from '../../src/limit/quota.ts'
import { NO_FACTS } from '../../src/policy/facts.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { compileRoutes } from '../../src/policy/routes.ts'

const limit: Limit = {
  ...{ name: 'requests', per: ['client'], limit: 1, windowMs: 60_000, shadow: false, changes: [] },
}
const route = (match: string, limits = [limit]) => ({
  ...(parsePattern(match) as Pattern),
  ...{ match, authenticate: 'bearer' as const, scope: [], maxBody: 0, limits },
})

it('routes share what is compiled of a limit, which 10,000 of them would hold 10,000 times', () => {
  const [first, second] = compileRoutes([route('/a/*'), route('/b/*')], { prefix: 'p' })
  expect(first!.compiled[0]).toBe(second!.compiled[0])
})

it('routes with the same limits share all that depends on them, and routes with others do not', () => {
  const other = { ...limit, limit: 2 }
  const lists = [[limit, other], [limit, other], [other, limit], [limit], []]
  const compiled = compileRoutes(
    lists.map((limits, i) => route(`/${i}/*`, limits)),
    { prefix: 'p' },
  )
  const caller = { client: 'a', user: undefined, ip: '', claims: {}, plan: undefined }
  const quotas = compiled.map((one) => one.quotas(caller, { ...NO_FACTS, route: one }, 0))
  expect(quotas.map((all) => (all as Quota[]).map((quota) => quota.limit))).toEqual([
    [1, 2],
    [1, 2],
    [2, 1],
    [1],
    [],
  ])
  expect(compiled[1]!.quotas).toBe(compiled[0]!.quotas)
  expect(new Set(compiled.map((one) => one.quotas)).size).toBe(4)
})
