import type { NameOf } from '../../limit/caller.ts'
import { readKeySet } from '../../authenticate/token/key-set.ts'
import { plainId } from '../../par/client-authentication.ts'
import type { Client, Settings } from '../schema.ts'
import type { Mistake } from '../yaml/source.ts'

/** The clients as the PAR endpoint knows them; key sets that are of no use are added to `mistakes`. */
export async function compileClients(
  clients: Settings['clients'],
  nameOf: NameOf,
  mistakes: Mistake[],
): Promise<readonly Client[]> {
  return Promise.all(
    clients.map(async ({ id, issuer, name, requestObjectSigningAlg, authentication, jwks, jwksUri }, i) => {
      if (jwks !== undefined) {
        const message = await uselessFor(requestObjectSigningAlg, jwks)
        if (message !== undefined) mistakes.push({ path: ['clients', i, 'jwks', 'keys'], message })
      }
      const url = jwksUri === undefined ? undefined : { url: jwksUri }
      return {
        id,
        plain: plainId(id),
        issuer,
        caller: nameOf(id, issuer),
        name,
        requestObjectSigningAlg,
        authentication,
        jwks: jwks ?? url,
      }
    }),
  )
}

async function uselessFor(
  algorithm: Client['requestObjectSigningAlg'],
  jwks: { readonly keys: readonly object[] },
): Promise<string | undefined> {
  const keys = await readKeySet(jwks).catch(() => undefined)
  if (keys === undefined || keys.size === 0) {
    return 'hold no key that verifies signatures; write a public one: RSA of 2048 to 4096 bits with an exponent of at most 64, P-256, P-384 or Ed25519'
  }
  if (algorithm === undefined || algorithm === 'none' || algorithm.startsWith('HS')) return undefined
  return keys.find(algorithm, undefined).length > 0
    ? undefined
    : `hold no key for ${algorithm}, with which requestObjectSigningAlg says that it signs; add it`
}
