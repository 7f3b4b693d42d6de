import { Refusal } from '../errors.ts'
import { accessKey, proofKey } from '../limit/key.ts'
import type { Quota } from '../limit/quota.ts'
import { claimedBy, excludedBy } from './conditions.ts'
import { type Caller, type Facts, tokenHash } from './facts.ts'
import type { Limit } from './limit.ts'
import type { Parameters } from './parameter-kinds.ts'
import { type CompiledKey, compileKey } from './parts.ts'
import { unknownPlanOf } from './plans.ts'
import { type AllRules, type ClientRules, quotaOf, rulesOf } from './rule.ts'

export interface LimitOptions extends AllRules {
  readonly prefix: string
  readonly parameters?: Parameters
  /** True if the digest of a secret may be given in its place, as operators do. Never for callers. */
  readonly acceptsDigests?: boolean
  /** Called for a claim that is present, but gives its limit no value. */
  readonly onBadClaim?: ((limit: Limit) => void) | undefined
  /** Called for a plan that a token names, and that does not exist. */
  readonly onUnknownPlan?: ((plan: string) => void) | undefined
}

/**
 * A limit as the steps in which it is applied to a request, by which it is charged and explained.
 */
export interface CompiledLimit extends CompiledKey {
  readonly limit: Limit
  /**
   * Returns the condition, or the missing part, by which the limit is left out of a request;
   * undefined if it applies.
   */
  leftOutBy(caller: Caller, facts: Facts): string | undefined
  /** Returns the rules of a caller; of a key that is not known, only its beginning. */
  rulesFor(caller: Caller, key: string): ClientRules
  /**
   * Applies the limit at an instant (epoch milliseconds): returns a 400 or 403 if the request lacks
   * a part of the key, undefined if the limit is left out.
   */
  apply(caller: Caller, facts: Facts, nowMs: number): Quota | Refusal | undefined
}

export function compileLimit(limit: Limit, options: LimitOptions): CompiledLimit {
  const { claim, together } = limit
  const { prefix, parameters = {}, acceptsDigests = false, onBadClaim, onUnknownPlan, plans } = options
  const compiledKey = compileKey(limit, prefix, limit.parameters ?? parameters, acceptsDigests)
  const { keyFor, skippedBy } = compiledKey

  const leftOutBy = (caller: Caller, facts: Facts): string | undefined =>
    excludedBy(limit, caller, facts) ?? skippedBy(caller, facts)

  function rulesFor(caller: Caller, key: string): ClientRules {
    const rules = rulesOf(options, limit, key, caller)
    if (caller.plan !== undefined && plans !== undefined) {
      const unknown = unknownPlanOf(plans, caller)
      if (unknown !== undefined) onUnknownPlan?.(unknown)
    }
    const claimed = claim && claimedBy(claim, caller, () => onBadClaim?.(limit))
    return claimed === undefined ? rules : { claimed, ...rules }
  }

  function apply(caller: Caller, facts: Facts, nowMs: number): Quota | Refusal | undefined {
    if (leftOutBy(caller, facts) !== undefined) return undefined
    const key = keyFor(caller, facts)
    if (key instanceof Refusal) return key
    const quota = quotaOf(limit, key, nowMs, rulesFor(caller, key))
    return together === undefined ? quota : { access: accessOf(quota, together, facts), ...quota }
  }

  return { ...compiledKey, limit, leftOutBy, rulesFor, apply }
}

function accessOf({ key, windowMs, calendar }: Quota, together: number | 'token', facts: Facts) {
  if (together !== 'token') return { key: accessKey(key), windowMs: together, isOfToken: false }
  return { key: accessKey(key, tokenHash(facts)), windowMs, calendar, isOfToken: true }
}

/**
 * Returns the function that applies limits to a request: a 400 or 403 if it lacks a part of a key.
 */
export function applyAll(limits: readonly CompiledLimit[]) {
  const hasShares = limits.some(({ limit }) => limit.counts !== undefined)
  return (caller: Caller, facts: Facts, nowMs: number): readonly Quota[] | Refusal => {
    const quotas: Quota[] = []
    for (const { apply } of limits) {
      const applied = apply(caller, facts, nowMs)
      if (applied instanceof Refusal) return applied
      if (applied !== undefined) quotas.push(applied)
    }
    return hasShares ? oncePerCounter(quotas) : quotas
  }
}

/**
 * Returns one quota for each counter, in the order of the limits: the live one with the lowest
 * limit, which refuses first. Shadow shares only read the counter: without a live quota, nothing is
 * charged for them.
 */
export function oncePerCounter(quotas: readonly Quota[]): readonly Quota[] {
  const keys = new Set(quotas.map(({ key }) => key))
  return [...keys].flatMap((counter) => {
    const all = quotas.filter(({ key }) => key === counter)
    const [lowest] = all.filter(({ shadow }) => !shadow).toSorted((a, b) => a.limit - b.limit)
    if (lowest === undefined) return all.filter(({ counts }) => counts === undefined)
    return { shadowShares: all.filter(({ shadow }) => shadow), ...lowest }
  })
}

/**
 * Returns the quota that lets a DPoP proof pass once in `windowMs`; all replays of a proof share
 * its key.
 */
export function proofQuota(prefix: string, first: string, id: string, windowMs: number): Quota {
  const key = proofKey(prefix, first, id)
  return { name: 'proof', key, limit: 1, windowMs, shadow: false, isProof: true }
}
