import { foldCase } from '../downstream/target.ts'
import { memoize } from '../runtime/hot-path.ts'
import { addressOf, type CallerPart, identityOf, MAX_SHOWN, showCaller, type ShownCaller } from './counted.ts'
import { type Caller, type Facts, tokenHash } from './facts.ts'
import type { KeyedLimit } from './key.ts'
import { claimText } from './parts.ts'

/** Returns the value of a request for a word of `per` that says who calls; undefined if it has none. */
function valueOf(word: string, caller: Caller, facts: Facts): string | undefined {
  const [of, name = ''] = word.split(/:(.*)/s)
  switch (of) {
    case 'client':
    case 'user':
      return caller[of]
    case 'ip':
      return addressOf(caller.ip)
    case 'token':
      return tokenHash(facts)
    case 'claim':
      return claimText(caller.claims?.[name])
    default: {
      const value = facts.field(name)?.[0]
      return value === undefined ? undefined : foldCase(value)
    }
  }
}

/** Names the caller of a request by some words of `per`; undefined if it lacks one of them. */
type Name = (caller: Caller, facts: Facts) => ShownCaller | undefined

function nameByOne(word: string): Name {
  const named = memoize(
    (value) => {
      const parts = [{ word, value }]
      return { parts, shown: showCaller(parts) }
    },
    MAX_SHOWN,
    256,
  )
  return (caller, facts) => {
    const value = valueOf(word, caller, facts)
    return value === undefined ? undefined : named(value)
  }
}

function nameByAll(words: readonly string[]): Name {
  return (caller, facts) => {
    const parts: CallerPart[] = []
    for (const word of words) {
      const value = valueOf(word, caller, facts)
      if (value === undefined) return undefined
      parts.push({ word, value })
    }
    return { parts, shown: showCaller(parts) }
  }
}

/** Names the client of a request. */
export const nameClient = nameByOne('client')

const NOBODY: readonly ShownCaller[] = []

/** Compiles the function that names the callers whom the limits of some quotas count: one, mostly. */
export function compileCallers(limits: readonly KeyedLimit[]) {
  const names = new Map<string, Name>()
  const nameOf = new Map<string, Name>()
  for (const { name, per } of limits) {
    const words = identityOf(per)
    if (words.length === 0) continue
    const id = words.join('\n')
    const naming = names.get(id) ?? (words.length === 1 ? nameByOne(words[0]!) : nameByAll(words))
    names.set(id, naming)
    nameOf.set(name, naming)
  }
  return (
    quotas: readonly { readonly name: string }[],
    caller: Caller,
    facts: Facts,
  ): readonly ShownCaller[] => {
    const done: Name[] = []
    for (const { name } of quotas) {
      const naming = nameOf.get(name)
      if (naming !== undefined && !done.includes(naming)) done.push(naming)
    }
    return done.length === 0 ? NOBODY : done.flatMap((naming) => naming(caller, facts) ?? [])
  }
}
