import { UncountedCaller } from '../errors.ts'
import { type KeyFilter, keyOf, parseKey } from '../limit/key.ts'
import { type CountedCaller, counterKey, encodeValue, formatCaller } from './counted-caller.ts'
import { identityOf, showCaller, showValue } from './counted-caller.ts'
import { decodePart, type KeyedLimit, nameInKeys } from './key.ts'
import { SHORTENED } from './secret-values.ts'
import { wordOf } from './words.ts'

/** True if a limit counts by every part of a caller, and perhaps by further ones. */
export const countsBy = ({ per }: KeyedLimit, caller: CountedCaller): boolean =>
  caller.every(({ word }) => per.includes(word))

/**
 * Returns the key of a caller under a limit, or its beginning if the limit counts by further parts.
 */
export function callerKey(prefix: string, limit: KeyedLimit, caller: CountedCaller): string {
  const parts = limit.per.map((word) => caller.find((part) => part.word === word))
  const known = parts.includes(undefined) ? parts.slice(0, parts.indexOf(undefined)) : parts
  return counterKey(prefix, nameInKeys(limit), known as CountedCaller)
}

/**
 * Returns the keys of a caller under these limits, also those with further parts, and with or
 * without those of accesses.
 */
export function callerKeys(
  limits: readonly KeyedLimit[],
  prefix: string,
  caller: CountedCaller,
  withAccesses = true,
): KeyFilter {
  const mine = limits.filter((limit) => countsBy(limit, caller))
  const alone = mine.filter(({ per }) => per.length === caller.length)
  const further = mine.filter((limit) => !alone.includes(limit) || (withAccesses && limit.together))
  const wanted = caller.map((part) => ({ word: part.word, text: encodeValue(part) }))
  const [{ word: firstWord, text: firstText }] = wanted as [(typeof wanted)[number]]
  const isFirst = further.every(({ per }) => per[0] === firstWord)
  const glob = isFirst ? `${prefix}:{${firstText}}:*` : `${prefix}:*${firstText}*`
  return {
    named: [...new Set(alone.map((limit) => callerKey(prefix, limit, caller)))],
    glob: further.length > 0 ? glob : undefined,
    matches(key) {
      const { name, isAccess, hasLeases, parts = [] } = parseKey(prefix, key) ?? {}
      const limit = mine.find((limit) => limit.name === name && !!limit.isConcurrent === hasLeases)
      if (limit === undefined || (isAccess && !withAccesses)) return false
      return wanted.every(({ word, text }) => parts[limit.per.indexOf(word)] === text)
    },
  }
}

/** Throws an UncountedCaller unless a limit counts by the parts of a caller. */
export function assertCounted(limits: readonly KeyedLimit[], caller: CountedCaller): void {
  if (limits.some((limit) => countsBy(limit, caller))) return
  const forms = limits.map(({ per }) => identityOf(per).map((word) => ({ word, value: 'VALUE' })))
  const words = new Set(forms.map(formatCaller).filter(Boolean))
  const asked = caller.map(({ word }) => word).join(' and ')
  const known = `The limits count by ${[...words].join(', ') || 'no caller'}`
  throw new UncountedCaller(`No limit counts "${showCaller(caller)}", by ${asked}. ${known}.`)
}

/**
 * Returns a key as it may be shown: secret values in it are shortened. `hidesAddresses` also leaves
 * out addresses.
 */
export function showKey(prefix: string, limit: KeyedLimit, key: string, hidesAddresses = false): string {
  const { per } = limit
  const { parts = [] } = parseKey(prefix, key) ?? {}
  const [first = '', ...rest] = parts.map((part, i) => {
    const word = per[i] ?? ''
    if (hidesAddresses && wordOf(word).compares === 'network') return SHORTENED
    return showValue(word, decodePart(part), part)
  })
  return per.length === 0 ? key : [keyOf(prefix, nameInKeys(limit), first), ...rest].join(':')
}
