import { Refusal } from '../../src/errors.ts'
import { applyAll, compileLimit, type LimitOptions } from '../../src/policy/apply.ts'
import type { Limit } from '../../src/policy/limit.ts'
import type { Quota } from '../../src/limit/quota.ts'
import { type Caller, type Facts, NO_FACTS } from '../../src/policy/facts.ts'

interface Asked extends Partial<LimitOptions> {
  readonly nowMs?: number
  readonly params?: Facts['params']
  readonly facts?: Facts
}

export const compileLimits = (limits: readonly Limit[], options: LimitOptions) =>
  applyAll(limits.map((limit) => compileLimit(limit, options)))

/** Applies limits to a request; throws if it lacks a part of a key. */
export function quotasOf(
  limits: readonly Limit[],
  caller: Partial<Caller>,
  { nowMs = 0, params = {}, facts = NO_FACTS, ...options }: Asked = {},
): readonly Quota[] {
  const apply = compileLimits(limits, { prefix: 'p', ...options })
  const quotas = apply({ ip: '192.0.2.7', ...caller }, { ...facts, params }, nowMs)
  if (quotas instanceof Refusal) throw new Error(quotas.message)
  return quotas
}
