import { loggablePath } from '../../downstream/target.ts'
import { isObject, type JsonObject } from '../../runtime/json.ts'
import { extensionCause, mismatch, shown } from '../jose/cause.ts'
import { needsExtension } from '../jose/jws.ts'
import { privateMember } from '../jose/key-set.ts'

/** Returns the parameter of a proof's header that is not accepted, for the log. */
export function headerCause(header: JsonObject, algorithms: readonly string[]): string {
  const { typ, alg } = header
  if (typ !== 'dpop+jwt') return mismatch('typ', typ, ['dpop+jwt'], 'proof')
  return needsExtension(header) ? extensionCause(header) : mismatch('alg', alg, algorithms, 'proof')
}

/** Returns what the key in a proof lacks. It may be private: only the names of its members are logged. */
export function jwkCause(jwk: unknown): string {
  if (!isObject(jwk))
    return `accepted jwk: a key; of the proof: ${jwk === undefined ? 'none' : 'another value'}`
  const secret = privateMember(jwk)
  if (secret !== undefined) return `the jwk is private: it has the member ${secret}`
  return `${mismatch('kty', jwk['kty'], ['RSA', 'EC', 'OKP'], 'jwk')}; its members: ${shown(Object.keys(jwk))}`
}

/**
 * Returns the URL that a proof is for, without its query, and the one that it must be for; without
 * their paths if these must not be logged.
 */
export function urlCause(htu: unknown, requested: string, hosts: readonly string[], hidesPath = false) {
  const loggable = (url: unknown): string => loggableUrl(url, hidesPath)
  const accepted = `accepted htu: ${loggable(requested)}, at ${shown(hosts)}`
  return `${accepted}; of the proof: ${htu === undefined ? 'none' : loggable(htu)}`
}

function loggableUrl(url: unknown, hidesPath: boolean): string {
  if (typeof url !== 'string' || !URL.canParse(url)) return 'no URL'
  const { protocol, host, pathname } = new URL(url)
  return shown(`${protocol}//${host}${hidesPath ? '/…' : loggablePath(pathname)}`)
}
