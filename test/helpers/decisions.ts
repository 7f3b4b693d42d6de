import { type Decision, longestWait } from '../../src/limit/decision.ts'
import type { Allowance } from '../../src/limit/store.ts'

const AT = Date.UTC(2026, 10, 21, 10, 15, 30, 123)

export function allowance(rest: Partial<Allowance> = {}): Allowance {
  return {
    name: 'sync',
    limit: 1,
    windowMs: 5000,
    used: 1,
    remaining: 0,
    resetAt: AT,
    resetAfterMs: 4321.5,
    retryAfterMs: 4321.5,
    admitted: false,
    shadow: false,
    own: 0,
    ...rest,
  }
}

export const requests = allowance({
  name: 'requests',
  limit: 1000,
  windowMs: 60_000,
  remaining: 998,
  resetAfterMs: 30_000,
  retryAfterMs: 0,
  admitted: true,
})
export const shadow = allowance({ name: 'trial', shadow: true, retryAfterMs: 50_000 })

export function refused(...allowances: Allowance[]): Decision {
  return { admitted: false, allowances, refusedBy: longestWait(allowances)!, mode: 'store', cached: false }
}

export function admitted(...allowances: Allowance[]): Decision {
  return { admitted: true, allowances, mode: 'store', cached: false }
}
