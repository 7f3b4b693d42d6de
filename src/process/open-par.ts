import type { Client, Par } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import { createKeySource, type KeySource } from '../authenticate/token/jwks.ts'
import { createParGuard, type ParGuard } from '../par/guard.ts'
import { plainId } from '../par/client-authentication.ts'

/** The guards of the PAR endpoint; their clients' keys are opened when they are first needed, and outlive a reload that leaves them alone. */
export interface Guards {
  /** The guard for these settings and those of the clients that are its issuer's, or that name no issuer; closes the keys of all others. Undefined where there is no PAR endpoint. */
  guard(par: Par | undefined, clients: readonly Client[]): ParGuard | undefined
  end(): void
}

interface Opened {
  readonly jwks: NonNullable<Client['jwks']>
  readonly keys: KeySource
}

/** Opens the keys of clients as their guards need them. */
export function createGuards(log: Log): Guards {
  const opened = new Map<string, Opened>()

  function keysOf({ id, jwks }: Client): KeySource | undefined {
    const known = opened.get(id)
    if (known !== undefined && (known.jwks === jwks || JSON.stringify(known.jwks) === JSON.stringify(jwks))) {
      return known.keys
    }
    close(id)
    if (jwks === undefined) return undefined
    const keys = createKeySource({
      issuer: id,
      jwks: 'url' in jwks ? jwks.url : jwks,
      events: {
        failed: (reason) =>
          log.warn({ client: id, reason }, 'the keys of the client cannot be read; trying again'),
        recovered: () => log.info({ client: id }, 'the keys of the client are read again'),
      },
    })
    opened.set(id, { jwks, keys })
    return keys
  }

  function close(id: string): void {
    opened.get(id)?.keys.close()
    opened.delete(id)
  }

  return {
    guard(par, clients) {
      const listed = new Map(par && clientsOf(par, clients).map((client) => [client.id, client]))
      // An id that is plain itself stands among the listed ones; there may be 100,000.
      const spellings = new Set<string>()
      for (const { id, plain } of listed.values()) if (plain !== id) spellings.add(plain)
      for (const id of opened.keys()) if (!listed.has(id)) close(id)
      return (
        par &&
        createParGuard({
          ...par,
          clientOf(id) {
            const client = listed.get(id)
            return client && { ...client, keys: keysOf(client) }
          },
          isMisspelt(id) {
            const plain = plainId(id)
            return spellings.has(plain) || (plain !== id && listed.has(plain))
          },
        })
      )
    },
    end() {
      for (const id of opened.keys()) close(id)
    },
  }
}

/** Of two with one id the one that names the issuer counts, which the guard is told last. */
function clientsOf({ issuer }: Par, clients: readonly Client[]): readonly Client[] {
  const unnamed = clients.filter((client) => client.issuer === undefined)
  return [...unnamed, ...clients.filter((client) => client.issuer === issuer)]
}
