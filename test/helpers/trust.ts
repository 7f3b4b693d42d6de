import type { VerifyProof } from '../../src/authenticate/proof/dpop.ts'
import { type Authenticate, createBearer, type TrustedIssuer } from '../../src/authenticate/token/bearer.ts'
import type { BoundToken } from '../../src/authenticate/token/challenge.ts'
import type { Identity } from '../../src/authenticate/token/claims.ts'
import {
  createKeySource,
  type Keys,
  type KeySource,
  type KeysOptions,
} from '../../src/authenticate/token/jwks.ts'
import type { Tokens } from '../../src/config/config.ts'
import { Refusal } from '../../src/errors.ts'
import { closeLater } from './closing.ts'
import type { TestIssuer } from './issuer.ts'

/** Reads the keys of a test issuer. */
export async function keysOf({ issuer }: TestIssuer, options: Partial<KeysOptions> = {}): Promise<KeySource> {
  const keys = createKeySource({ issuer, events: { onDown() {}, onUp() {} }, ...options })
  closeLater(() => keys.close())
  await keys.refresh()
  return keys
}

/** Returns a test issuer as a trusted issuer. */
export function trust(
  { issuer, audience }: Pick<TestIssuer, 'issuer' | 'audience'>,
  keys: Keys,
  options: Partial<TrustedIssuer> = {},
): TrustedIssuer {
  return {
    issuer,
    audience: [audience],
    clientClaim: 'client_id',
    algorithms: ['PS256', 'ES256', 'EdDSA', 'RS256'],
    leewayMs: 5000,
    realm: 'test',
    type: 'any',
    keys,
    ...options,
  }
}

type Serving = (...request: Parameters<Authenticate>) => Identity | Refusal | Promise<Identity | Refusal>

/** Authenticates a call: each proof is accepted once. */
export function createServing(
  trusted: TrustedIssuer | readonly TrustedIssuer[],
  proofs?: VerifyProof,
): Serving {
  const authenticate = createBearer([trusted].flat(), proofs)
  const used = new Set<string>()
  async function serve(bound: BoundToken): Promise<Identity | Refusal> {
    const proof = await bound.prove()
    if (proof instanceof Refusal) return proof
    return used.size < used.add(proof.id).size ? bound.identity : bound.replayed()
  }
  const served = (known: Identity | BoundToken | Refusal) => ('prove' in known ? serve(known) : known)
  return (...request) => {
    const answer = authenticate(...request)
    return answer instanceof Promise ? answer.then(served) : served(answer)
  }
}

/** Returns the settings of a test issuer in a configuration. */
export function settingsOf({ issuer, audience }: TestIssuer, more: Partial<Tokens> = {}): Tokens {
  return {
    issuer,
    names: [issuer],
    audience: [audience],
    audienceOptional: false,
    jwks: undefined,
    clientClaim: 'client_id',
    algorithms: ['ES256'],
    leewayMs: 0,
    realm: 'test',
    type: 'any',
    ...more,
  }
}
