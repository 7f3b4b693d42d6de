/**
 * The layout of keys: `<prefix>:{<first part>}:<name>:<further parts>`. The parts are encoded: none
 * contains a colon or a brace. Redis Cluster keeps all keys with the same first part together.
 * Names that begin with `~` are no limits.
 */

/** The keys of a set: some that are known, and those that a glob matches. */
export interface KeyFilter {
  /** The keys whose names are known. */
  readonly named: readonly string[]
  /** A glob that matches all other keys of the set, and keys that are not; undefined if there are no others. */
  readonly glob: string | undefined
  matches(key: string): boolean
}

/** Returns the prefix of a store's keys: as configured, or `sluice` in memory. */
export const prefixOf = (store: 'memory' | { readonly prefix: string }): string =>
  store === 'memory' ? 'sluice' : store.prefix

/** Returns the key of a name, whose first part is empty by default. */
export const keyOf = (prefix: string, name: string, first = ''): string => `${prefix}:{${first}}:${name}`

/** Returns the key of an access under a limit, beside that of the limit. */
export const accessKey = (key: string, token?: string): string =>
  `${beside(key, 'access')}${token === undefined ? '' : `:${token}`}`

/** Returns the key of a DPoP proof. */
export const proofKey = (prefix: string, first: string, id: string): string =>
  keyOf(prefix, `~proof:${id}`, first)

/** Returns the key that holds the number of the last merge of a gateway into a key. */
export const mergedKey = (key: string, gateway: string): string => beside(key, `merged:${gateway}`)

/**
 * Returns the keys of the registrations of gateways, and of the instant since which a server has
 * its data, in the slot of a tag.
 */
export const registrationKeys = (prefix: string, tag: string): readonly [gateways: string, since: string] => [
  keyOf(prefix, '~gateways', tag),
  keyOf(prefix, '~since', tag),
]

/** Returns the key of all overrides. */
export const overridesKey = (prefix: string): string => keyOf(prefix, '~overrides')

/** Returns the key of the summaries of all gateways. */
export const summariesKey = (prefix: string): string => keyOf(prefix, '~summaries')

/** Returns a key in the same hash slot that belongs to a key. */
function beside(key: string, what: string): string {
  const end = key.lastIndexOf('}:') + 2
  return `${key.slice(0, end)}~${what}:${key.slice(end)}`
}

const afterFirst = (key: string): readonly string[] => key.slice(key.lastIndexOf('}:') + 2).split(':')

/** Returns the number of parts of a key. */
export const partsOf = (key: string): number => afterFirst(key).length

/** Returns the name of a key's limit, also of the key of an access. */
export function limitNameOf(key: string): string {
  const [name = '', further = ''] = afterFirst(key)
  return name === '~access' ? further : name
}

/**
 * Returns the name and the encoded parts of a key, and for the key of an access the name of its
 * limit; undefined if it does not start with the prefix.
 */
export function parseKey(prefix: string, key: string) {
  const end = key.indexOf('}:', prefix.length)
  if (end === -1 || !key.startsWith(`${prefix}:{`)) return undefined
  const [name = '', ...rest] = key.slice(end + 2).split(':')
  const isAccess = name === '~access'
  const [limit = '', ...parts] = isAccess ? rest : [name, ...rest]
  return { name: limit, isAccess, parts: [key.slice(prefix.length + 2, end), ...parts] }
}
