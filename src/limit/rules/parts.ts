import type { Params } from '../../downstream/router.ts'
import { memoize } from '../../runtime/hot-path.ts'
import { encodePart, ipPart, type KeyedLimit, paramPart } from '../key.ts'
import { checkOf, type Parameters } from '../parameters.ts'
import { type Caller, type Facts, headerValues, tokenHash } from './facts.ts'

/** Reads an encoded part of a key; undefined if the request lacks it. */
export type Read = (caller: Caller, params: Params, facts: Facts) => string | undefined

const routePart = memoize(encodePart, 1000, 1000)
/** Maximum length of a claim in a key, in characters. */
const MAX_CLAIM = 255

/** True for parts that a token must contain, or a caller must send: a request may lack them. */
export const mayLack = (part: string): boolean => part === 'user' || /^(?:claim|header):/.test(part)

/** True if a request does not have such a part at all, not even a malformed one. */
export function isAbsent(part: string, { user, claims }: Caller, facts: Facts): boolean {
  if (part === 'user') return user === undefined
  const [of, name = ''] = part.split(/:(.*)/s)
  return (of === 'claim' ? claims?.[name] : headerValues(facts, name)) === undefined
}

/** True for first parts that differ, or are undefined, between requests with the same token and URL. */
export const isVariable = (part: string | undefined): boolean =>
  part === undefined || part === 'ip' || part.startsWith('header:')

/** Returns the reader of a part. Claims and header fields that are not of their kind in `parameters` are missing. */
export function partReader(part: string, parameters: Parameters): Read {
  if (part === 'client') return ({ client }) => (client === undefined ? undefined : encodePart(client))
  if (part === 'user') return ({ user }) => (user === undefined ? undefined : encodePart(user))
  if (part === 'ip') return ({ ip }) => ipPart(ip)
  if (part === 'route') return (_, __, { route }) => route && routePart(route.match)
  if (part === 'token') return (_, __, facts) => tokenHash(facts)
  const [, of, name = ''] = /^(claim|header):(.*)$/s.exec(part) ?? []
  if (of === undefined)
    return (_, params) => (params[part] === undefined ? undefined : paramPart(params[part]))
  const isOfKind = checkOf(parameters, part)
  if (of === 'claim')
    return ({ claims }) => {
      const text = claimText(claims?.[name])
      return text !== undefined && (isOfKind?.(text) ?? true) ? encodePart(text) : undefined
    }
  return (_, __, facts) => {
    const values = headerValues(facts, name)
    return values?.length === 1 && isOfKind!(values[0]!) ? paramPart(values[0]!) : undefined
  }
}

/** Returns a claim as text; undefined unless it is an integer, or a string of 1 to 255 characters. Unsafe integers may be rounded. */
function claimText(claim: unknown): string | undefined {
  if (Number.isSafeInteger(claim)) return String(claim)
  return typeof claim === 'string' && claim !== '' && claim.length <= MAX_CLAIM ? claim : undefined
}

/** Returns the function that makes a limit's key, `<prefix>:{<first part>}:<limit>:<rest>`. It throws a TypeError for a request that lacks a part. */
export function compileKey({ name, per }: KeyedLimit, prefix: string, parameters: Parameters) {
  const [first, ...rest] = per.map((part) => {
    const read = partReader(part, parameters)
    return (caller: Caller, params: Params, facts: Facts): string => {
      const text = read(caller, params, facts)
      // Rather than one counter for all such callers.
      if (text === undefined)
        throw new TypeError(`A limit is counted per ${part}, and this request has none.`)
      return text
    }
  })
  return (caller: Caller, params: Params, facts: Facts): string => {
    let key = `${prefix}:{${first === undefined ? '' : first(caller, params, facts)}}:${name}`
    for (const read of rest) key += `:${read(caller, params, facts)}`
    return key
  }
}
