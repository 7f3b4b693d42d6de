import type { KeyedLimit } from '../key.ts'
import type { Conditional } from './conditions.ts'
import type { Caller } from './facts.ts'

/** The claim that gives a limit its number of calls, itself or by `values`. */
export interface ClaimedLimit {
  readonly name: string
  /** Maximum number of calls that the claim may give. */
  readonly max?: number
  readonly values?: Readonly<Record<string, number>>
}

/** Returns the number of calls that a token gives; undefined if it gives none. Calls `onBad` for a claim that is not a whole number, or not one of `values`. */
export function valueOf<L extends { readonly claim?: ClaimedLimit }>(
  limit: L,
  { claims }: Caller,
  onBad: (limit: L) => void,
): number | undefined {
  const { name, max = Infinity, values } = limit.claim!
  const claim = claims?.[name]
  if (claim === undefined) return undefined
  if (values === undefined && Number.isSafeInteger(claim) && (claim as number) >= 0)
    return Math.min(claim as number, max)
  if (values !== undefined && typeof claim !== 'object' && Object.hasOwn(values, String(claim)))
    return values[String(claim)]
  onBad(limit)
  return undefined
}

type Reading = KeyedLimit & Conditional & { readonly claim?: ClaimedLimit }

/** Returns the names of the claims that limits read, sorted. */
export function claimsOf(limits: readonly Reading[]): readonly string[] {
  const names = limits.flatMap(({ per, claim, when = [], unless = [] }) => [
    ...per.flatMap((part) => (part.startsWith('claim:') ? part.slice('claim:'.length) : [])),
    ...[...when, ...unless].flatMap(({ of, name }) => (of === 'claim' ? name : [])),
    ...(claim === undefined ? [] : [claim.name]),
  ])
  return [...new Set(names)].toSorted()
}
