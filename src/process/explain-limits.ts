import type { Config } from '../config/schema.ts'
import type { Params } from '../downstream/router.ts'
import { prefixOf } from '../limit/key.ts'
import { compileLimits, type Limit } from '../limit/limit.ts'
import type { Overrides } from '../limit/overrides.ts'
import { excludedBy } from '../limit/rules/conditions.ts'
import type { Caller, Facts } from '../limit/rules/facts.ts'
import { isAbsent, mayLack, partReader } from '../limit/rules/parts.ts'
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
  const facts = { ...asker.facts, route }
  const own = clientLimits.get(caller.client ?? '')
  const set = overrides.get(caller.client ?? '')
  const isLacking = (part: string): boolean =>
    part === 'ip' ? caller.ip === '' : partReader(part, parameters)(caller, params, facts) === undefined

  /** Applies a limit, even if it is left out, and as far as its key is known. */
  function quotaOf(limit: Limit, per: readonly string[]) {
    const applied = { ...limit, per, when: [], unless: [] }
    const options = { parameters }
    const apply = compileLimits([applied], prefixOf(store), clientLimits, overrides, options)
    return apply(caller, params, nowMs, facts)[0]!
  }

  return route.limits.map((configured) => {
    const { name, per, calendar, skipsMissing } = configured
    const rules = [configured, nowMs, own?.get(name), set?.get(name)] as const
    /** The parts of the key that the question does not name. */
    const lacking = per.filter(isLacking)
    const missing = skipsMissing
      ? lacking.find((part) => mayLack(part) && isAbsent(part, caller, facts))
      : undefined
    const { limit, windowMs, shadow, key } = quotaOf(
      configured,
      per.filter((part) => !lacking.includes(part)),
    )
    return {
      ...{ name, limit, windowMs, shadow, per, lacking },
      ...(skipsMissing && { missing: 'skip' as const }),
      ...(calendar && { calendar }),
      /** The condition, or the missing part, by which the limit is left out of the request; null if it applies. */
      leftOut: excludedBy(configured, caller, facts) ?? (missing === undefined ? null : `without ${missing}`),
      key: lacking.length > 0 ? null : key,
      ...decidedBy(...rules),
      next: upcomingChanges(...rules)[0] ?? null,
      /** Calls that are counted now; null if the store was not asked. */
      used: null as number | null,
    }
  })
}
