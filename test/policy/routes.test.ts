import { expect, it } from 'vitest'
import { type Pattern, parsePattern } from '../../src/downstream/pattern.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { compileRoutes } from '../../src/policy/routes.ts'

const limit: Limit = {
  ...{ name: 'requests', per: ['client'], limit: 1, windowMs: 60_000, shadow: false, changes: [] },
}
const route = (match: string) => ({
  ...(parsePattern(match) as Pattern),
  ...{ match, authenticate: 'bearer' as const, scope: [], maxBody: 0, limits: [limit] },
})

it('routes share what is compiled of a limit, which 10,000 of them would hold 10,000 times', () => {
  const [first, second] = compileRoutes([route('/a/*'), route('/b/*')], { prefix: 'p' })
  expect(first!.compiled[0]).toBe(second!.compiled[0])
})
