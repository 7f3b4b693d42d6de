import type { Params } from '../../downstream/router.ts'
import { badRequest, Refusal } from '../../errors.ts'
import type { KeyedLimit } from '../key.ts'
import type { Parameters } from '../parameters.ts'
import { type Conditional, excludedBy } from './conditions.ts'
import type { Caller, Facts } from './facts.ts'
import { mayLack, partReader } from './parts.ts'

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
export function compileLeftOut(limit: RuledLimit, parameters: Parameters): Check<boolean> | undefined {
  const { when, unless, per, skipsMissing } = limit
  const skips = skipsMissing === true && per.some(mayLack)
  if (when === undefined && unless === undefined && !skips) return undefined
  const lacking = compileLacking(per, parameters)
  return (caller, params, facts) =>
    excludedBy(limit, caller, facts) !== undefined || (skips && lacking(caller, params, facts) !== undefined)
}

export type RefuseLacking = ReturnType<typeof compileRefusal>

/** Compiles a function that refuses a request that lacks a part of the keys of limits: 400 for a header field, 403 for what a token lacks. */
export function compileRefusal(limits: readonly RuledLimit[], parameters: Parameters) {
  const compiled = limits
    .filter(({ per, skipsMissing }) => skipsMissing !== true && per.some(mayLack))
    .map((limit) => ({ limit, lacking: compileLacking(limit.per.filter(mayLack), parameters) }))
  return (caller: Caller, params: Params, facts: Facts): Refusal | undefined => {
    for (const { limit, lacking } of compiled) {
      const part = lacking(caller, params, facts)
      if (part !== undefined && excludedBy(limit, caller, facts) === undefined) return refusalOf(part)
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
