import type { Params, Route } from '../downstream/router.ts'
import type { Calendar } from './calendar.ts'
import { encodePart, ipPart, type KeyedLimit, paramPart } from './key.ts'
import { isActive, isOverridable, type Override, type Overrides } from './overrides.ts'

/** The verified identity of a request's sender. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, named by `createQualifier` of authenticate/token/bearer.ts. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
}

/** Action while the store is unavailable: count in this process, admit every call, or refuse with a 503. */
export type OutageMode = 'local' | 'allow' | 'deny'

/** A named limit of the configuration: the calls that each key may make per window. */
export interface Limit extends KeyedLimit {
  /** The default, if `claim` is set. */
  readonly limit: number
  /** The longest possible period, if `calendar` is set. */
  readonly windowMs: number
  /** The periods of the calendar in which calls are counted, in place of a window that slides. */
  readonly calendar?: Calendar
  /** Calls within these milliseconds of a charged call, or with a token that was charged, belong to its access, and pass free. */
  readonly together?: number | 'token'
  /** True if a call whose response is an error is given back. */
  readonly countsSuccess?: boolean
  /** Replaces that of the store. */
  readonly onOutage?: OutageMode
  /** True if the limit is counted and reported, but never refuses. */
  readonly shadow: boolean
  /** Announced changes of `limit`, in the order in which they take effect. Instants are epoch milliseconds. */
  readonly changes: readonly Readonly<Record<'announcedAt' | 'fromAt' | 'limit', number>>[]
}

/** A route with the limits that are charged for its requests. */
export interface LimitedRoute extends Route {
  readonly limits: readonly Limit[]
}

/** A client's own limit of the file, which replaces the named limit and its changes until `untilAt`. */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number
}

/** The clients' own limits: client id → limit name → limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>

/** A limit applied to one caller, now. */
export interface Quota {
  readonly name: string
  readonly key: string
  readonly limit: number
  readonly windowMs: number
  readonly shadow: boolean
  readonly calendar?: Calendar | undefined
  /** Has no room while an access of this quota is under way, whose further calls pass free. */
  readonly access?: Quota | undefined
  readonly countsSuccess?: boolean | undefined
  readonly onOutage?: OutageMode | undefined
  /** Epoch milliseconds at which the override or the client's own limit ends, if one applies and ends. */
  readonly untilAt?: number | undefined
}

/** Name of the limit of a DPoP proof; names of configured limits never begin with `~`. */
const PROOF = '~proof'

/** Returns the quota that lets a DPoP proof pass once in `windowMs`; all replays of a proof share its key. */
export function proofQuota(prefix: string, first: string, id: string, windowMs: number): Quota {
  return { name: PROOF, key: `${prefix}:{${first}}:${PROOF}:${id}`, limit: 1, windowMs, shadow: false }
}

export const isProof = ({ name }: Quota): boolean => name === PROOF

/** Name of the quota of an access: no limit of its own, but it says if the next quota is charged. */
export const ACCESS = '~access'
export const isAccess = ({ name }: Pick<Quota, 'name'>): boolean => name === ACCESS

/** Returns the rule that sets the number of calls at an instant: the override, the client's own limit, the latest change, or the limit. */
export function inForce(limit: Limit, nowMs: number, own?: ClientLimit, set?: Override) {
  if (set !== undefined && isActive(set, nowMs) && isOverridable(limit)) return set
  if (own !== undefined && isActive(own, nowMs)) return own
  const { changes } = limit
  // A loop, because `findLast` takes 10 ns more for each limit of a call.
  for (let i = changes.length - 1; i >= 0; i--) if (changes[i]!.fromAt <= nowMs) return changes[i]!
  return limit
}

/** Applies a limit to a key now. An override does not change the window. */
export function quotaOf(limit: Limit, key: string, nowMs: number, own?: ClientLimit, set?: Override): Quota {
  const { name, shadow } = limit
  const rule: ClientLimit = inForce(limit, nowMs, own, set)
  const windowMs = own?.windowMs !== undefined && isActive(own, nowMs) ? own.windowMs : limit.windowMs
  return { name, key, limit: rule.limit, windowMs, shadow, untilAt: rule.untilAt }
}

/** Compiles the limits of a route to a function that applies them. Keys are `<prefix>:{<first part>}:<limit>:<rest>`. */
export function compileLimits(
  limits: readonly Limit[],
  prefix: string,
  clientLimits: ClientLimits = new Map(),
  overrides: Overrides = new Map(),
): (caller: Caller, params: Params, nowMs: number) => readonly Quota[] {
  const distinct = new Map(limits.map((limit) => [limit.name, limit]))
  const compiled = [...distinct.values()].map((limit) => ({ limit, keyOf: keyReader(limit, prefix) }))

  return (caller, params, nowMs) => {
    const { client } = caller
    const own = client === undefined ? undefined : clientLimits.get(client)
    const set = client === undefined || overrides.size === 0 ? undefined : overrides.get(client)
    return compiled.map(({ limit, keyOf }) =>
      quotaOf(limit, keyOf(caller, params), nowMs, own?.get(limit.name), set?.get(limit.name)),
    )
  }
}

type Read = (caller: Caller, params: Params) => string

/** The reader of each limit's key, shared by all routes that have the limit. */
const keyReaders = new WeakMap<Limit, { readonly prefix: string; readonly read: Read }>()

function keyReader(limit: Limit, prefix: string): Read {
  let reader = keyReaders.get(limit)
  if (reader?.prefix !== prefix) keyReaders.set(limit, (reader = { prefix, read: compileKey(limit, prefix) }))
  return reader.read
}

function compileKey({ name, per }: Limit, prefix: string): Read {
  const before = `${prefix}:{`
  const [first, ...rest] = per.map(partReader) as [Read, ...Read[]]
  return (caller, params) => {
    let key = `${before}${first(caller, params)}}:${name}`
    for (const part of rest) key += `:${part(caller, params)}`
    return key
  }
}

function partReader(part: string): Read {
  if (part === 'client' || part === 'user') return (caller) => encodePart(present(caller[part], part))
  if (part === 'ip') return ({ ip }) => ipPart(present(ip, part))
  return (_, params) => paramPart(present(params[part], part))
}

/** Throws a TypeError if the caller lacks a part of a key, rather than share one counter among all such callers. */
function present(value: string | undefined, part: string): string {
  if (value === undefined) throw new TypeError(`A limit is counted per ${part}, and this request has none.`)
  return value
}
