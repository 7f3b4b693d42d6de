import type { Config } from '../config/compile.ts'
import type { Params } from '../downstream/router.ts'
import { prefixOf } from '../limit/key.ts'
import { quotaOf, rulesOf } from '../limit/limit.ts'
import type { Overrides } from '../limit/overrides.ts'
import { claimedBy, excludedBy } from '../limit/rules/conditions.ts'
import type { Caller, Facts } from '../limit/rules/facts.ts'
import { compileKey, mayLack, partReader } from '../limit/rules/parts.ts'
import { decidedBy, upcomingChanges } from '../limit/usage.ts'
import type { CompiledRoute } from './routes.ts'

/** The sender of a request to explain, as far as the question names it; an unknown address is empty. */
export interface Asker {
  readonly caller: Caller
  readonly facts: Facts
}

/** Explains the limits of a route for a request at an instant (epoch milliseconds), also those that are left out of it. */
export function explainLimits(
  { route, params }: { readonly route: CompiledRoute; readonly params: Params },
  asker: Asker,
  { config, overrides, nowMs }: { config: Config; overrides: Overrides; nowMs: number },
) {
  const { clientLimits, parameters, store } = config
  const { caller } = asker
  const facts = { ...asker.facts, route, params }
  return route.limits.map((limit) => {
    const { name, per, claim, calendar, skipsMissing } = limit
    const rules = rulesOf({ clientLimits, overrides }, caller.client ?? '', name)
    const parts = per.map((part) => {
      const text = partReader(part, parameters)(caller, facts)
      return { part, text: part === 'ip' && caller.ip === '' ? undefined : text }
    })
    /** The parts of the key that the question does not name. */
    const lacking = parts.filter(({ text }) => text === undefined || text === null).map(({ part }) => part)
    const missing = skipsMissing && parts.find(({ part, text }) => mayLack(part) && text === undefined)?.part
    const key = compileKey(limit, prefixOf(store), parameters)(caller, facts)
    const claimed = claim && claimedBy(claim, caller)
    const { limit: calls, windowMs, shadow } = quotaOf(limit, '', nowMs, { ...rules, claimed })
    return {
      ...{ name, limit: calls, windowMs, shadow, per, lacking },
      ...(skipsMissing && { missing: 'skip' as const }),
      ...(calendar && { calendar }),
      /** The condition, or the missing part, by which the limit is left out of the request; null if it applies. */
      leftOut: excludedBy(limit, caller, facts) ?? (missing ? `without ${missing}` : null),
      key: lacking.length === 0 && typeof key === 'string' ? key : null,
      ...decidedBy(limit, nowMs, rules),
      next: upcomingChanges(limit, nowMs, rules)[0] ?? null,
      /** Calls that are counted now; null if the store was not asked. */
      used: null as number | null,
    }
  })
}
