import type { Quota } from './quota.ts'
import type { Allowance, Charge } from './store.ts'

/** The outcome of a call under its limits. A cached refusal has only the cached allowances. */
export interface Decision extends Omit<Charge, 'proof'> {
  /** The allowance with the longest wait among those that refused. */
  readonly refusedBy?: Allowance | undefined
  /** True if the call was refused without asking the store. */
  readonly cached: boolean
  /** True if the call's DPoP proof was used before; nothing is charged then. */
  readonly replayed?: boolean
}

/**
 * Returns the allowance of a quota; undefined if the quota was not counted. Those of an outage do not
 * have the places of the quotas: under `onOutage: allow`, a limit has none.
 */
export const allowanceUnder = (
  { allowances }: Pick<Decision, 'allowances'>,
  { name }: Pick<Quota, 'name'>,
): Allowance | undefined => allowances.find((one) => one.name === name)

/** Returns the refusing live allowance with the longest wait; undefined if none refuses. */
export function longestWait(allowances: readonly Allowance[]): Allowance | undefined {
  let longest: Allowance | undefined
  for (const one of allowances)
    if (refuses(one) && (longest === undefined || one.retryAfterMs > longest.retryAfterMs)) longest = one
  return longest
}

/** True if the allowance of a live limit refuses. */
export const refuses = ({ admitted, shadow }: Allowance): boolean => !admitted && !shadow

/** Returns the whole seconds until the next call can pass, of an allowance that refuses; at least 1. */
export const retryAfterSecs = ({ retryAfterMs }: Allowance): number =>
  Math.max(1, Math.ceil(retryAfterMs / 1000))
