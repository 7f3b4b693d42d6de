/**
 * The layout of keys: `<prefix>:{<first part>}:<name>:<further parts>`. The parts are encoded: none
 * contains a colon or a brace. Redis Cluster keeps all keys with the same first part together.
 * Names that begin with `~` are not limits.
 */

const ACCESS = '~access'
const LEASES = '~leases'

/** The keys of a set: some that are known, and those that a glob matches. */
export interface KeyFilter {
  /** The keys whose names are known. */
  readonly named: readonly string[]
  /** A glob that matches all other keys of the set, and keys that are not; undefined if there are no others. */
  readonly glob: string | undefined
  matches(key: string): boolean
}

/** Returns the key of a name, whose first part is empty by default. */
export const keyOf = (prefix: string, name: string, first = '') => `${prefix}:{${first}}:${name}`

/**
 * Returns the name that keys of a limit of calls at once have: a limit that becomes one, or is one
 * no longer, must not find the other kind of content under its key.
 */
export const leasesName = (name: string): string => `${LEASES}:${name}`

/** Returns the key of an access under a limit, in the hash slot of the limit's key. */
export const accessKey = (key: string, token?: string): string =>
  `${beside(key, ACCESS)}${token === undefined ? '' : `:${token}`}`

/** Returns the key of a DPoP proof. */
export const proofKey = (prefix: string, first: string, id: string): string =>
  keyOf(prefix, `~proof:${id}`, first)

/**
 * Returns the key that marks a merge of a gateway into a key as done. Each merge has its own: the
 * expiry of one must not affect the next.
 */
export const mergedKey = (key: string, gateway: string, number: number): string =>
  beside(key, `~merged:${gateway}.${number}`)

/**
 * Returns the key that has the number of the last settlements of a gateway that are done, in the slot
 * of a tag.
 */
export const settledKey = (prefix: string, tag: string, gateway: string): string =>
  keyOf(prefix, `~settled:${gateway}`, tag)

/** Returns the key of the registrations of gateways, in the slot of a tag. */
export const gatewaysKey = (prefix: string, tag: string): string => keyOf(prefix, '~gateways', tag)

/** Returns the key of the instant since which a server has its data, in the slot of a tag. */
export const sinceKey = (prefix: string, tag: string): string => keyOf(prefix, '~since', tag)

/** Returns the key of the instant at which a server last registered a gateway, in the slot of a tag. */
export const seenKey = (prefix: string, tag: string): string => keyOf(prefix, '~seen', tag)

/** Returns the key that exists while some gateway shows the summaries of all, in the slot of a tag. */
export const watchedKey = (prefix: string, tag: string): string => keyOf(prefix, '~watched', tag)

/** Returns the key of all overrides. */
export const overridesKey = (prefix: string): string => keyOf(prefix, '~overrides')

/** Returns the key of the summaries of all gateways. */
export const summariesKey = (prefix: string): string => keyOf(prefix, '~summaries')

/** Returns a key in the same hash slot that belongs to a key. */
function beside(key: string, what: string): string {
  const end = key.lastIndexOf('}:') + 2
  return `${key.slice(0, end)}${what}:${key.slice(end)}`
}

/** Returns the name of a key's limit, and the parts after the first. */
function namedParts(key: string): readonly [name: string, ...further: string[]] {
  const [name = '', ...further] = key.slice(key.lastIndexOf('}:') + 2).split(':')
  if (name !== ACCESS && name !== LEASES) return [name, ...further]
  const [limit = '', ...parts] = further
  return [limit, ...parts]
}

/** Returns the number of parts of a key. */
export const partCount = (key: string): number => namedParts(key).length

/** Returns the name of a key's limit, also of the keys of accesses and leases. */
export const limitNameOf = (key: string): string => namedParts(key)[0]

/**
 * Returns the encoded parts of a key, the name of its limit, and whether its content is accesses or
 * leases; undefined if it does not start with the prefix.
 */
export function parseKey(prefix: string, key: string) {
  const end = key.indexOf('}:', prefix.length)
  if (end === -1 || !key.startsWith(`${prefix}:{`)) return undefined
  const [name, ...further] = namedParts(key)
  const has = (kind: string): boolean => key.startsWith(`${kind}:`, end + 2)
  const parts = [key.slice(prefix.length + 2, end), ...further]
  return { name, isAccess: has(ACCESS), hasLeases: has(LEASES), parts }
}
