import type { Outline } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'

/** Every member of a private or symmetric key (RFC 7518 section 6). */
const PRIVATE = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

/** Keys of clients that come from two places, or that are not public. */
export function* keysOf({ clients }: Outline): Generator<Mistake> {
  for (const [i, { jwks, jwksUri }] of clients.entries()) {
    const path = ['clients', i, 'jwks']
    if (jwks === undefined) continue
    if (jwksUri !== undefined) {
      const message = 'stands beside "jwks"; take one of the two out'
      yield { path: ['clients', i, 'jwksUri'], message, key: true }
    }
    for (const [j, jwk] of jwks.keys.entries()) {
      const secret = PRIVATE.find((member) => member in jwk)
      if (secret === undefined) continue
      const message =
        'is a part of a private key, which its owner alone should have; write the public key without it, and have the client make a new one'
      yield { path: [...path, 'keys', j, secret], message, key: true }
    }
  }
}
