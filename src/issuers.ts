import { type Authenticate, createBearer, type TrustedIssuer } from './authenticate/bearer.ts'
import { createProofs } from './authenticate/dpop.ts'
import { createIntrospection } from './authenticate/introspection.ts'
import { createKeySource } from './authenticate/jwks.ts'
import type { Tokens } from './config/schema.ts'
import { type GatewayError, serviceUnavailable } from './errors.ts'
import type { Log } from './observe/log.ts'
import { reused } from './reused.ts'

/** The issuers whose tokens are taken; their keys and what is known of tokens outlive a reload that leaves them alone. */
export interface Issuers {
  /** Authenticates by the tokens of these issuers; `hosts` are those for which DPoP proofs may be made. */
  authenticate(tokens: readonly Tokens[], hosts: readonly string[]): Authenticate
  /** Ends what no `authenticate` asked for since the last call. */
  endUnused(): void
  end(): void
}

/** Opens issuers as they are asked for. */
export function createIssuers(log: Log): Issuers {
  const trusted = reused(
    (tokens: Tokens) => trust(tokens, log),
    ({ keys }) => keys.close(),
  )
  const bearers = reused(
    ({ tokens, hosts }: { readonly tokens: readonly Tokens[]; readonly hosts: readonly string[] }) =>
      createBearer(
        tokens.map((one) => trusted.get(one)),
        // Whom a proof is for cannot be told where no host is known to be this gateway's.
        hosts.length > 0 ? { proofs: createProofs({ serves: (host) => hosts.includes(host) }) } : {},
      ),
    () => {},
  )
  return {
    authenticate(tokens, hosts) {
      if (tokens.length === 0) return nobody
      for (const one of tokens) trusted.get(one)
      return bearers.get({ tokens, hosts })
    },
    endUnused() {
      bearers.endUnused()
      trusted.endUnused()
    },
    end() {
      bearers.end()
      trusted.end()
    },
  }
}

function trust(tokens: Tokens, log: Log): TrustedIssuer {
  const { issuer, jwks, introspection } = tokens
  const keys = createKeySource({
    issuer,
    jwks: jwks && ('url' in jwks ? jwks.url : jwks.file),
    events: {
      failed: (reason) => log.warn({ issuer, reason }, 'the keys of the issuer cannot be read; trying again'),
      recovered: () => log.info({ issuer }, 'the keys of the issuer are read again'),
    },
  })
  const introspect =
    introspection &&
    createIntrospection({
      ...tokens,
      ...introspection,
      events: {
        failed: (reason) => log.warn({ issuer, reason }, 'opaque tokens cannot be looked up; trying again'),
        recovered: () => log.info({ issuer }, 'opaque tokens are looked up again'),
      },
    })
  return { ...tokens, keys, introspect }
}

/** Where no route asks for a token, no `tokens` need be configured. */
const nobody = (): GatewayError => serviceUnavailable('Nobody can be authenticated here.')
