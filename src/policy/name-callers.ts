import { memoize } from '../runtime/memoize.ts'
import { countedForm, type CountedCaller, identityOf } from './counted-caller.ts'
import { MAX_SHOWN, showCaller, type ShownCaller } from './counted-caller.ts'
import type { Caller, Facts } from './facts.ts'
import type { KeyedLimit } from './key.ts'
import { type Parameters, secretParts } from './parameter-kinds.ts'
import { digestOf } from './secret-values.ts'
import { valueReader } from './words.ts'

const MAX_LENGTH = 256
const MAX_WORDS = 1000

/** Names the caller of a request by some words of `per`; empty if it lacks one of them. */
type Name = (caller: Caller, facts: Facts) => readonly ShownCaller[]

const NOBODY: readonly ShownCaller[] = []
const shownAs = (parts: CountedCaller) => [{ parts, shown: showCaller(parts) }]

/** Shared by all routes, since what it returns for a word caches up to `MAX_SHOWN` callers. */
const nameByOne = memoize((word) => createNameByOne(word, countedForm(word)), MAX_WORDS, MAX_LENGTH)
const nameBySecret = memoize(
  (word) => createNameByOne(word, (value) => digestOf(countedForm(word)(value))),
  MAX_WORDS,
  MAX_LENGTH,
)

function createNameByOne(word: string, formOf: (value: string) => string): Name {
  const named = memoize((value) => shownAs([{ word, value: formOf(value) }]), MAX_SHOWN, MAX_LENGTH)
  const read = valueReader(word)
  return (caller, facts) => {
    const value = read(caller, facts)
    return typeof value === 'string' ? named(value) : NOBODY
  }
}

function nameByAll(words: readonly string[], secrets: ReadonlySet<string>): Name {
  const names = words.map((word) => (secrets.has(word) ? nameBySecret(word) : nameByOne(word)))
  if (names.length === 1) return names[0]!
  return (caller, facts) => {
    const found = names.flatMap((nameOf) => nameOf(caller, facts))
    return found.length < words.length ? NOBODY : shownAs(found.flatMap(({ parts }) => parts))
  }
}

/** Names the client of a request. */
export const nameClient = nameByOne('client')

/**
 * Compiles the function that names the callers whom the limits of some quotas count: one, mostly.
 */
export function compileCallers(limits: readonly KeyedLimit[], parameters: Parameters = {}) {
  const secrets = secretParts(parameters)
  const namings = new Map<string, { readonly nameOf: Name; readonly limits: Set<string> }>()
  for (const { name, per } of limits) {
    const words = identityOf(per)
    if (words.length === 0) continue
    const id = words.join('\n')
    const naming = namings.get(id) ?? { nameOf: nameByAll(words, secrets), limits: new Set() }
    naming.limits.add(name)
    namings.set(id, naming)
  }
  const all = [...namings.values()]
  return (quotas: readonly { readonly name: string }[], caller: Caller, facts: Facts) => {
    let callers = NOBODY
    for (const { nameOf, limits } of all) {
      if (!quotas.some(({ name }) => limits.has(name))) continue
      const named = nameOf(caller, facts)
      callers = callers.length === 0 ? named : [...callers, ...named]
    }
    return callers
  }
}
