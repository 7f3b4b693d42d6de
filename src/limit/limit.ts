import type { Caller } from './caller.ts'
import type { Route } from '../downstream/router.ts'
import { encodePart, ipPart, paramPart } from './key.ts'

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

/** A client's own limit, which beats the named one and its changes until `untilAt`. */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number
}

/** The own limits of every client that has some: client id → limit name → its limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>

/** A limit applied to one caller, now: what a store is asked to charge. */
export interface Quota {
  readonly name: string
  readonly key: string
  readonly limit: number
  readonly windowMs: number
  readonly shadow: boolean
  /** Epoch milliseconds at which the client's own limit ends, where one applies and ends. */
  readonly untilAt?: number | undefined
  /** Calls that were counted elsewhere: they are added whether there is room or not. One call, if it has room, unless given. */
  readonly calls?: number
}

/** The limit of a DPoP proof: no name of a configured limit begins with `~`. */
const PROOF = '~proof'

/** What makes a proof pass once in `windowMs`: charged beside the limits of a call, under a key that all its replays share. */
export function proofQuota(prefix: string, first: string, id: string, windowMs: number): Quota {
  return { name: PROOF, key: `${prefix}:{${first}}:${PROOF}:${id}`, limit: 1, windowMs, shadow: false }
}

export function isProof({ name }: { readonly name: string }): boolean {
  return name === PROOF
}

/** Path parameters: name → canonical, still percent-encoded segment. */
type Params = Readonly<Record<string, string>>

/** Applies the compiled limits to a caller at an instant (epoch milliseconds), in their order. */
export type ApplyLimits = (caller: Caller, params: Params, nowMs: number) => readonly Quota[]

const NO_CLIENT_LIMITS: ClientLimits = new Map()

/**
 * Prepares the limits of a route, so that applying them to a request is cheap. Keys are
 * `<prefix>:{<first part>}:<limit>:<rest>`. Applying throws a TypeError where the caller lacks a part of a key: a missing
 * part must never become one counter for everybody.
 */
export function compileLimits(
  limits: readonly Limit[],
  prefix: string,
  clientLimits: ClientLimits = NO_CLIENT_LIMITS,
): ApplyLimits {
  const names = new Set<string>()
  const parts: string[] = []
  const compiled = limits
    .filter(({ name }) => names.size < names.add(name).size)
    .map((limit) => ({
      limit: inOrder(limit),
      key: compileKey(
        limit,
        prefix,
        limit.per.map((part) => {
          const known = parts.indexOf(part)
          return known === -1 ? parts.push(part) - 1 : known
        }),
      ),
    }))
  const readers = parts.map(partReader)

  return (caller, params, nowMs) => {
    const encoded = readers.map((read) => read(caller, params))
    const own = caller.client === undefined ? undefined : clientLimits.get(caller.client)
    return compiled.map(({ limit, key }) => quota(limit, key(encoded), own?.get(limit.name), nowMs))
  }
}

/** `compileLimits` for a single use, such as `sluice explain`. */
export function quotasFor(
  limits: readonly Limit[],
  caller: Caller,
  params: Params,
  prefix: string,
  nowMs: number,
  clientLimits?: ClientLimits,
): readonly Quota[] {
  return compileLimits(limits, prefix, clientLimits)(caller, params, nowMs)
}

function quota(limit: Limit, key: string, own: ClientLimit | undefined, nowMs: number): Quota {
  const { name, windowMs, shadow } = limit
  const rule = inForce(limit, own, nowMs)
  if (rule === own) {
    return { name, key, limit: own.limit, windowMs: own.windowMs ?? windowMs, shadow, untilAt: own.untilAt }
  }
  return { name, key, limit: rule.limit, windowMs, shadow, untilAt: undefined }
}

/**
 * What says how many calls a limit allows a client at an instant (epoch milliseconds): the client's own limit where it has
 * one that has not ended, else the latest change in force, else the limit itself.
 */
export function inForce(
  limit: Limit,
  own: ClientLimit | undefined,
  nowMs: number,
): ClientLimit | Change | Limit {
  if (own !== undefined && (own.untilAt === undefined || nowMs < own.untilAt)) return own
  const { changes } = limit
  for (let i = changes.length - 1; i >= 0; i--) if (changes[i]!.fromAt <= nowMs) return changes[i]!
  return limit
}

function inOrder(limit: Limit): Limit {
  return { ...limit, changes: limit.changes.toSorted((a, b) => a.fromAt - b.fromAt) }
}

function compileKey(
  { name }: Limit,
  prefix: string,
  parts: readonly number[],
): (encoded: readonly string[]) => string {
  const [first, ...rest] = parts as [number, ...number[]]
  const before = `${prefix}:{`
  const after = `}:${name}`
  const [second] = rest
  if (second === undefined) return (encoded) => before + encoded[first]! + after
  if (rest.length === 1) return (encoded) => `${before}${encoded[first]!}${after}:${encoded[second]!}`
  return (encoded) => {
    let key = before + encoded[first]! + after
    for (const part of rest) key += `:${encoded[part]!}`
    return key
  }
}

function partReader(part: string): (caller: Caller, params: Params) => string {
  switch (part) {
    case 'client':
      return ({ client }) => encodePart(present(client, part))
    case 'user':
      return ({ user }) => encodePart(present(user, part))
    case 'ip':
      return ({ ip }) => ipPart(present(ip, part))
    default:
      return (_, params) => paramPart(present(params[part], part))
  }
}

function present(value: string | undefined, part: string): string {
  if (value === undefined) throw new TypeError(`A limit is counted per ${part}, and this request has none.`)
  return value
}

/** Which keys are meant. */
export interface KeyFilter {
  /** Those that are known by name. */
  readonly named: readonly string[]
  /** A glob that all others match; undefined where there are none. */
  readonly glob: string | undefined
  /** Is it meant? A glob may match keys that are not. */
  matches(key: string): boolean
}

/** The keys that belong to a client under these limits, wherever in the key the client stands. */
export function clientKeys(limits: readonly Limit[], prefix: string, client: string): KeyFilter {
  const wanted = encodePart(client)
  const mine = limits.filter(({ per }) => per.includes('client'))
  const further = mine.filter(({ per }) => per.length > 1)
  const positions = new Map(
    mine.map(({ name, per }) => [name, per.flatMap((part, at) => (part === 'client' ? [at] : []))]),
  )
  const literalPrefix = prefix.replaceAll(/[*?[\]\\]/g, String.raw`\$&`)
  const isFirst = further.every(({ per }) => per[0] === 'client')
  const glob = isFirst ? `${literalPrefix}:{${wanted}}:*` : `${literalPrefix}:*${wanted}*`
  return {
    named: mine.filter(({ per }) => per.length === 1).map(({ name }) => `${prefix}:{${wanted}}:${name}`),
    glob: further.length > 0 ? glob : undefined,
    matches(key) {
      const parsed = parseKey(prefix, key)
      return (
        parsed !== undefined &&
        (positions.get(parsed.name)?.every((at) => parsed.parts[at] === wanted) ?? false)
      )
    },
  }
}

/** The quota that a client's key stands for now; undefined where no limit of that name exists any more. */
export function quotaOfKey(
  limits: readonly Limit[],
  prefix: string,
  key: string,
  client: string,
  nowMs: number,
  clientLimits: ClientLimits = NO_CLIENT_LIMITS,
): Quota | undefined {
  const parsed = parseKey(prefix, key)
  const limit = parsed && limits.find(({ name }) => name === parsed.name)
  return limit && quota(inOrder(limit), key, clientLimits.get(client)?.get(limit.name), nowMs)
}

function parseKey(
  prefix: string,
  key: string,
): { readonly name: string; readonly parts: readonly string[] } | undefined {
  const end = key.indexOf('}:', prefix.length)
  if (end === -1 || !key.startsWith(`${prefix}:{`)) return undefined
  const [name, ...rest] = key.slice(end + 2).split(':')
  return { name: name!, parts: [key.slice(prefix.length + 2, end), ...rest] }
}

export type { Caller }
