import { UncountedCaller } from '../errors.ts'
import { type KeyFilter, keyOf, parseKey } from '../limit/key.ts'
import {
  type CallerPart,
  type CountedCaller,
  counterKey,
  encodeValue,
  formatCaller,
} from './counted-caller.ts'
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
  const known: CallerPart[] = []
  for (const word of limit.per) {
    const part = caller.find((one) => one.word === word)
    if (part === undefined) break
    known.push(part)
  }
  return counterKey(prefix, nameInKeys(limit), known)
}

/** Returns all keys of a caller under these limits, also those with further parts and of accesses. */
export const callerKeys = (limits: readonly KeyedLimit[], prefix: string, caller: CountedCaller): KeyFilter =>
  keysOf(limits, prefix, caller, true)

/** Returns the keys of a caller under these limits, also those with further parts, without accesses. */
export const counterKeys = (
  limits: readonly KeyedLimit[],
  prefix: string,
  caller: CountedCaller,
): KeyFilter => keysOf(limits, prefix, caller, false)

function keysOf(
  limits: readonly KeyedLimit[],
  prefix: string,
  caller: CountedCaller,
  withAccesses: boolean,
): KeyFilter {
  const counting = limits.filter((limit) => countsBy(limit, caller))
  const isByCallerOnly = ({ per }: KeyedLimit): boolean => per.length === caller.length
  /** The limits that have keys without a known name. */
  const scanned = counting.filter((limit) => !isByCallerOnly(limit) || (withAccesses && limit.together))
  const parts = caller.map((part) => ({ word: part.word, text: encodeValue(part) }))
  // A caller has at least one part.
  const first = parts[0]!
  const isAlwaysFirst = scanned.every(({ per }) => per[0] === first.word)
  const glob = isAlwaysFirst ? `${prefix}:{${first.text}}:*` : `${prefix}:*${first.text}*`
  return {
    named: [...new Set(counting.filter(isByCallerOnly).map((limit) => callerKey(prefix, limit, caller)))],
    glob: scanned.length > 0 ? glob : undefined,
    matches(key) {
      const parsed = parseKey(prefix, key)
      if (parsed === undefined || (parsed.isAccess && !withAccesses)) return false
      const { name, hasLeases } = parsed
      const limit = counting.find((one) => one.name === name && (one.isConcurrent ?? false) === hasLeases)
      return (
        limit !== undefined && parts.every(({ word, text }) => parsed.parts[limit.per.indexOf(word)] === text)
      )
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
