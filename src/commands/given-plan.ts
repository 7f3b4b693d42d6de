import { planName } from '../config/sections/keys.ts'
import { nearest } from '../config/yaml/issue.ts'
import { UsageError } from './args.ts'
import { formatList } from './format.ts'

/** Returns a plan that a flag names, which must be one of `plans` if they are known; null for `none`. */
export function readGivenPlan(plan: string, plans: readonly string[] | undefined): string | null {
  if (plan === 'none') return null
  if (plans?.includes(plan) === true) return plan
  if (!planName.safeParse(plan).success)
    throw new UsageError('The name of a plan is of letters, digits, ".", "-" and "_".')
  if (plans === undefined) return plan
  const similar = nearest(plan, plans)
  const others = plans.length === 0 ? 'It has none.' : `It has: ${formatList(plans)}.`
  const remedy = similar === undefined ? others : `Did you mean "${similar}"?`
  throw new UsageError(`The configuration has no plan "${plan}". ${remedy}`)
}
