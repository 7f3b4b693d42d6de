import type { JsonObject } from '../../runtime/json.ts'
import { type Jws, parseJws } from './jws.ts'
import { type KeySet, lacksKey } from './key-set.ts'

/** Maximum characters of a value in a cause, and of all accepted ones, which are in the configuration. */
const MAX_VALUE = 200
const MAX_ACCEPTED = 240

const cutAt = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max - 1)}…` : text)

/** Returns a value of a caller as JSON, cut; `none` if there is none. */
export const shown = (value: unknown): string => cutAt(JSON.stringify(value) ?? 'none', MAX_VALUE)

/** Returns the cause of a refusal, for the log: the values of a member that are accepted, and the caller's. */
export const mismatch = (name: string, value: unknown, accepted: readonly unknown[], of = 'token') =>
  `accepted ${name}: ${cutAt(accepted.join(', '), MAX_ACCEPTED)}; of the ${of}: ${shown(value)}`

/** Returns why a text cannot be parsed as a JWT, without the text. */
export function malformedCause(text: string): string {
  const accepted = 'accepted: three parts in base64url without padding, the first two JSON objects; '
  const parts = text.split('.').length
  if (parts !== 3) return `${accepted}parts: ${parts}`
  return accepted + (parseJws(text) === undefined ? 'a part is in another encoding' : 'the payload is none')
}

/** Returns which parameters of a header `needsExtension` refuses. */
export function extensionCause(header: JsonObject): string {
  const names = ['crit', 'b64', 'zip'].filter((name) => name in header)
  if (typeof header['kid'] !== 'string' && 'kid' in header) names.push('a kid that is not a text')
  return `accepted: no crit, b64 or zip, and a kid that is a text; of the header: ${names.join(', ')}`
}

/** Returns the cause for a signature that no key has made: the key that the header names, and the keys that there are. */
export function signatureCause(set: KeySet, jws: Jws): string {
  const { alg, kid } = jws.header
  const header = `alg: ${shown(alg)}`
  if (lacksKey(set, jws)) return `${mismatch('kid', kid, kidsOf(set), 'header')}; ${header}`
  const fitting = set.find(alg, kid).length
  const tried = fitting === 0 ? 'no key with this kid is for this alg' : `keys tried: ${fitting}`
  return `${tried}; of the header: kid: ${shown(kid)}; ${header}`
}

const kidsOf = ({ keys }: KeySet): readonly string[] => keys.map(({ kid = '(none)' }) => kid)
