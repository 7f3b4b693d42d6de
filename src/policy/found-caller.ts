import { type CountedCaller, showCaller } from './counted-caller.ts'

/**
 * The known caller that is shown as a text; `ambiguous` if several are: secret values with the same
 * first characters may have the same first digits of their SHA-256. Undefined if none is known.
 */
export type FoundCaller = CountedCaller | 'ambiguous' | undefined

/** True if two callers have the same parts in the same order. */
export const isSameCaller = (one: CountedCaller, other: CountedCaller): boolean =>
  one.length === other.length &&
  one.every(({ word, value }, i) => word === other[i]!.word && value === other[i]!.value)

/** Returns the caller that was found at several places; `ambiguous` if they found different ones. */
export function agreedCaller(found: readonly FoundCaller[]): FoundCaller {
  const [first, ...others] = found.filter((one) => one !== undefined)
  if (first === undefined || first === 'ambiguous') return first
  const isAgreed = others.every((other) => other !== 'ambiguous' && isSameCaller(first, other))
  return isAgreed ? first : 'ambiguous'
}

/** Returns the part of a caller that is shown as a text, as a caller of its own. */
export const partShownAs = (caller: CountedCaller, shown: string): FoundCaller =>
  caller.map((part) => [part]).find((one) => showCaller(one) === shown)
