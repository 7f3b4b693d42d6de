// oxlint-disable-next-line no-restricted-imports -- a pure formatter
import { type BareItem, type Item, serializeList } from 'structured-headers'
import type { Decision } from './decision.ts'
import type { Quota } from './limit.ts'
import type { Allowance } from './store.ts'

/** RFC 9651 section 3.3.1: the greatest integer of a structured field. */
const MOST = 999_999_999_999_999

/**
 * Returns `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10) of the decided limits that are not
 * shadow, as a flat list of names and values. A limit that a cached refusal knows nothing of is only in the policy. The draft
 * has only whole seconds, which are rounded up.
 */
export function draftHeaders({ allowances }: Decision, quotas: readonly Quota[]): string[] {
  const live = allowances.filter(({ shadow }) => !shadow)
  if (live.length === 0) return []
  const policies = quotas
    .filter(({ shadow }) => !shadow)
    .map((quota) => live.find(({ name }) => name === quota.name) ?? quota)
  return [
    'RateLimit-Policy',
    serializeList(policies.map(policy)),
    'RateLimit',
    serializeList(live.map(state)),
  ]
}

function policy({ name, limit, windowMs }: Pick<Quota, 'name' | 'limit' | 'windowMs'>): Item {
  return item(name, [
    ['q', Math.min(limit, MOST)],
    ['w', Math.ceil(windowMs / 1000)],
  ])
}

function state({ name, remaining, resetAfterMs }: Allowance): Item {
  return item(name, [
    ['r', Math.min(remaining, MOST)],
    ['t', Math.ceil(resetAfterMs / 1000)],
  ])
}

function item(name: string, parameters: readonly (readonly [string, BareItem])[]): Item {
  return [name, new Map(parameters)]
}
