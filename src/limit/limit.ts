import type { Params, Route } from '../downstream/router.ts'
import { memoize } from '../runtime/memoize.ts'
import { inForce, windowInForce } from './in-force.ts'
import { encodePart, ipPart, paramPart, parseKey } from './key.ts'
import type { Override, Overrides } from './overrides.ts'

/** Who makes a request; only what was proved. */
export interface Caller {
  /** The OAuth API client, from the token's `tokens.clientClaim`, named as in authenticate/token/claims.ts. */
  readonly client?: string
  /** The token's `sub`, named in the same way. */
  readonly user?: string
  /** The address of the socket's peer, or the one that a trusted proxy reports; IPv4-mapped IPv6 as IPv4. */
  readonly ip: string
}

/** A named rule as configured: so many calls per window for each key. */
export interface Limit {
  readonly name: string
  /** What the key is made of, in order: `client`, `user`, `ip`, or the name of a path parameter. */
  readonly per: readonly string[]
  readonly limit: number
  readonly windowMs: number
  /** Counts and reports, never refuses. */
  readonly shadow: boolean
  /** Announced changes of `limit`, in the order in which they take effect. */
  readonly changes: readonly Change[]
}

/** A route with the limits that are charged for its requests. */
export interface LimitedRoute extends Route {
  readonly limits: readonly Limit[]
}

/** An announced change of a limit. Instants are epoch milliseconds. */
export interface Change {
  readonly announcedAt: number
  readonly fromAt: number
  readonly limit: number
}

/** A client's own limit of the file, which beats the named one and its changes until `untilAt`. */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number
}

/** The own limits of every client that has some: client id → limit name → its limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>

/** A limit applied to one caller, now. */
export interface Quota {
  readonly name: string
  readonly key: string
  readonly limit: number
  readonly windowMs: number
  readonly shadow: boolean
  /** Epoch milliseconds at which the client's own limit, or the override, ends, where one applies and ends. */
  readonly untilAt?: number | undefined
  /** Calls that were counted elsewhere, and are added even without room. Default: one call, if there is room. */
  readonly calls?: number
}

/** The limit of a DPoP proof; the name of a configured limit never begins with `~`. */
const PROOF = '~proof'

/** Returns the quota that lets a DPoP proof pass once in `windowMs`; all replays of a proof share its key. */
export function proofQuota(prefix: string, first: string, id: string, windowMs: number): Quota {
  return { name: PROOF, key: `${prefix}:{${first}}:${PROOF}:${id}`, limit: 1, windowMs, shadow: false }
}

export const isProof = ({ name }: Quota): boolean => name === PROOF

/**
 * Prepares the limits of a route, so that applying them to a request is cheap. Keys are `<prefix>:{<first part>}:<limit>:<rest>`.
 * Applying them throws a TypeError if the caller lacks a part of a key: that must never become one counter for everybody.
 */
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
      quota(limit, keyOf(caller, params), own?.get(limit.name), set?.get(limit.name), nowMs),
    )
  }
}

type Read = (caller: Caller, params: Params) => string

/** Keys that are remembered for each limit, and the longest client that is: the same string is found faster than an equal one. */
const MAX_KEYS = 10_000
const MAX_CLIENT = 256

/** One for each limit, whatever routes have it. */
const keyReaders = new WeakMap<Limit, { readonly prefix: string; readonly read: Read }>()

function keyReader(limit: Limit, prefix: string): Read {
  const known = keyReaders.get(limit)
  if (known?.prefix === prefix) return known.read
  const read = compileKey(limit, prefix)
  keyReaders.set(limit, { prefix, read })
  return read
}

function compileKey({ name, per }: Limit, prefix: string): Read {
  const before = `${prefix}:{`
  if (per.length === 1 && per[0] === 'client') {
    const keyOf = memoize((client) => `${before}${encodePart(client)}}:${name}`, MAX_KEYS, MAX_CLIENT)
    return ({ client }) => keyOf(present(client, 'client'))
  }
  const [first, ...rest] = per.map(partReader) as [Read, ...Read[]]
  return (caller, params) => {
    let key = `${before}${first(caller, params)}}:${name}`
    for (const part of rest) key += `:${part(caller, params)}`
    return key
  }
}

function quota(
  limit: Limit,
  key: string,
  own: ClientLimit | undefined,
  set: Override | undefined,
  nowMs: number,
): Quota {
  const rule = inForce(limit, own, set, nowMs)
  return {
    name: limit.name,
    key,
    limit: rule.limit,
    windowMs: windowInForce(limit, own, nowMs),
    shadow: limit.shadow,
    untilAt: rule === set ? set?.untilAt : rule === own ? own?.untilAt : undefined,
  }
}

function partReader(part: string): Read {
  if (part === 'client') return ({ client }) => encodePart(present(client, part))
  if (part === 'user') return ({ user }) => encodePart(present(user, part))
  if (part === 'ip') return ({ ip }) => ipPart(present(ip, part))
  return (_, params) => paramPart(present(params[part], part))
}

function present(value: string | undefined, part: string): string {
  if (value === undefined) throw new TypeError(`A limit is counted per ${part}, and this request has none.`)
  return value
}

/** Returns the quota of a client's key now; undefined if its limit is not configured any more. */
export function quotaOfKey(
  limits: readonly Limit[],
  prefix: string,
  key: string,
  client: string,
  nowMs: number,
  clientLimits: ClientLimits = new Map(),
  overrides: Overrides = new Map(),
): Quota | undefined {
  const parsed = parseKey(prefix, key)
  const limit = parsed && limits.find(({ name }) => name === parsed.name)
  if (limit === undefined) return undefined
  const { name } = limit
  return quota(limit, key, clientLimits.get(client)?.get(name), overrides.get(client)?.get(name), nowMs)
}
