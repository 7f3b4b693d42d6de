import { createKeySource, type Keys, type KeySourceEvents } from '../authenticate/token/jwks.ts'
import { type Jws, verifyJws } from '../authenticate/token/jws.ts'
import { type KeySet, readKeySet } from '../authenticate/token/key-set.ts'
import { type Refusal, serviceUnavailable } from '../errors.ts'

/** Where a client's public keys come from: its JWK Set itself, or the http(s) URL of it. */
export type ClientKeysOptions = { readonly jwks: unknown } | { readonly jwksUri: string }

export type ClosableKeys = Keys & { close(): void }

/** Opens a client's keys; those behind a URL are loaded in the background and kept fresh. */
export function createClientKeys(options: ClientKeysOptions, events: KeySourceEvents): ClosableKeys {
  return 'jwksUri' in options
    ? createKeySource({ issuer: options.jwksUri, jwks: options.jwksUri, events })
    : createInlineKeys(options.jwks, events)
}

function createInlineKeys(document: unknown, events: KeySourceEvents): ClosableKeys {
  let keys: KeySet | undefined
  let reading: Promise<KeySet | undefined> | undefined = readKeySet(document)
    .then((set) => (keys = set))
    .catch((error: Error) => {
      events.failed(error.message)
      return undefined
    })
    .finally(() => (reading = undefined))
  return { current: () => keys, refresh: () => reading, close() {} }
}

/**
 * Is the signature of a JWS with a plain header one of `algorithm` by one of the client's keys? Keys that do not fit are read again first, at most once a
 * cool-down. Undefined where no keys could be read so far.
 */
export async function isSignedBy(keys: Keys, jws: Jws, algorithm: string): Promise<boolean | undefined> {
  const kid = jws.header['kid'] as string | undefined
  const verifiedBy = (set: KeySet): boolean =>
    set.find(algorithm, kid).some(({ key }) => verifyJws(jws, algorithm, key))
  const known = keys.current()
  if (known !== undefined && verifiedBy(known)) return true
  const fresh = await keys.refresh()
  if (fresh === undefined) return known && false
  return verifiedBy(fresh)
}

/** 503: the keys that would have to verify something could not be read so far. */
export function keysUnavailable(): Refusal {
  return serviceUnavailable(
    'The keys of this client cannot be read for now. Try again.',
    'the keys of the client could not be read so far',
  )
}
