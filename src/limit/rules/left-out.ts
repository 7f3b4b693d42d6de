import type { Params } from '../../downstream/router.ts'
import { badRequest, Refusal } from '../../errors.ts'
import type { KeyedLimit } from '../key.ts'
import type { Parameters } from '../parameters.ts'
import { type Conditional, excludedBy } from './conditions.ts'
import type { Caller, Facts } from './facts.ts'
import { isAbsent, mayLack, partReader } from './parts.ts'

interface RuledLimit extends KeyedLimit, Conditional {
  readonly skipsMissing?: boolean
}

type Check<Result> = (caller: Caller, params: Params, facts: Facts) => Result

/** Compiles a function that returns the first of the parts of a key that a request lacks. */
export function compileLacking(per: readonly string[], parameters: Parameters): Check<string | undefined> {
  const parts = per.map((part) => ({ part, read: partReader(part, parameters) }))
  return (caller, params, facts) => parts.find(({ read }) => read(caller, params, facts) === undefined)?.part
}

/** Compiles a function that returns true if a limit is left out of a request; undefined if it never is. */
export function compileLeftOut(limit: RuledLimit): Check<boolean> | undefined {
  const { when, unless, per, skipsMissing } = limit
  const skipped = skipsMissing === true ? per.filter(mayLack) : []
  if (when === undefined && unless === undefined && skipped.length === 0) return undefined
  return (caller, _, facts) =>
    excludedBy(limit, caller, facts) !== undefined || skipped.some((part) => isAbsent(part, caller, facts))
}

export type RefuseLacking = ReturnType<typeof compileRefusal>

/**
 * Compiles a function that refuses a request that lacks a part of the keys of limits: 400 for a header field, 403 for what a token
 * lacks. A part that is present, but malformed, is refused under `missing: skip`, too: otherwise it would let callers escape.
 */
export function compileRefusal(limits: readonly RuledLimit[], parameters: Parameters) {
  const compiled = limits
    .filter(({ per }) => per.some(mayLack))
    .map((limit) => ({
      isLeftOut: compileLeftOut(limit),
      lacking: compileLacking(limit.per.filter(mayLack), parameters),
    }))
  return (caller: Caller, params: Params, facts: Facts): Refusal | undefined => {
    for (const { isLeftOut, lacking } of compiled) {
      const part = lacking(caller, params, facts)
      if (part !== undefined && isLeftOut?.(caller, params, facts) !== true) return refusalOf(part)
    }
    return undefined
  }
}

function refusalOf(part: string): Refusal {
  const [of, name] = part.split(/:(.*)/s)
  if (of === 'header')
    return badRequest(`Send the header field ${name} once, in the form that this path is limited by.`)
  const what = of === 'user' ? 'user' : `"${name}"`
  const message = `The access token names no ${what}, and this path is limited for each ${what}.`
  return new Refusal('Forbidden', message)
}
