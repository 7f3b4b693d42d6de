import { expect, it } from 'vitest'
import { FAULTS } from './scope-faults.ts'
import { runScope, type Scope } from './scopes.ts'
import { FULL, LONG, quickly } from '../helpers/runs.ts'

/** All scopes take minutes: `npm run test:long`. */
const SCOPES: readonly Omit<Scope, 'faults' | 'limit'>[] = LONG
  ? [
      { gateways: 1, calls: 2, isReduced: false },
      { gateways: 1, calls: 3 },
      { gateways: 2, calls: 2 },
    ]
  : [{ gateways: 1, calls: 2 }]
/** `npm test` has every second fault. */
const PLAYED = FAULTS.filter((_, at) => FULL || at % 2 === 0)

it.each(SCOPES)(
  'keeps its promises in every order of $calls calls at each of $gateways gateways',
  async (scope) => {
    let orders = 0
    for (const fault of [undefined, ...PLAYED]) {
      const faults = fault === undefined ? [] : [fault]
      const { orders: own, broken } = await runScope({ ...scope, limit: 1, faults })
      expect({ fault, broken }).toEqual({ fault, broken: undefined })
      orders += own
    }
    // oxlint-disable-next-line no-console -- the count is in docs/limits.md
    console.log(`${orders} orders of ${scope.calls} calls at each of ${scope.gateways} gateways`)
    expect(orders).toBeGreaterThan(quickly(150, 300))
  },
  1_200_000,
)
