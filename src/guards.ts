import type { Client, Par } from './config/schema.ts'
import type { Log } from './observe/log.ts'
import { createClientKeys } from './par/client-keys.ts'
import { createParGuard, type ParGuard } from './par/guard.ts'
import { reused } from './reused.ts'

/** The guards of the PAR endpoint; their clients' keys outlive a reload that leaves them alone. */
export interface Guards {
  /** The guard for these settings and those of the clients that are its issuer's, or that name no issuer. */
  guard(par: Par, clients: readonly Client[]): ParGuard
  /** Closes the keys that no `guard` asked for since the last call. */
  endUnused(): void
  end(): void
}

interface KeysOfClient {
  readonly id: string
  readonly jwks: NonNullable<Client['jwks']>
}

/** Opens the keys of clients as their guards need them. */
export function createGuards(log: Log): Guards {
  const keys = reused(
    ({ id, jwks }: KeysOfClient) =>
      createClientKeys('url' in jwks ? { jwksUri: jwks.url } : { jwks }, {
        failed: (reason) =>
          log.warn({ client: id, reason }, 'the keys of the client cannot be read; trying again'),
        recovered: () => log.info({ client: id }, 'the keys of the client are read again'),
      }),
    (source) => source.close(),
  )
  return {
    guard: (par, clients) =>
      createParGuard({
        ...par,
        clients: clientsOf(par, clients).map(({ id, jwks, requestObjectSigningAlg, authentication }) => ({
          id,
          requestObjectSigningAlg,
          authentication,
          keys: jwks && keys.get({ id, jwks }),
        })),
      }),
    endUnused: keys.endUnused,
    end: keys.end,
  }
}

/** Of two with one id the one that names the issuer counts, which the guard is told last. */
function clientsOf({ issuer }: Par, clients: readonly Client[]): readonly Client[] {
  const unnamed = clients.filter((client) => client.issuer === undefined)
  return [...unnamed, ...clients.filter((client) => client.issuer === issuer)]
}
