import { createClientKeys } from '../authenticate/token/jwks.ts'
import type { Client, Config } from '../config/config.ts'
import type { Log } from '../observe/log.ts'
import { createAuthorizationGuard } from '../par/authorization.ts'
import { foldClientId, type ParClient } from '../par/clients.ts'
import { createParGuard } from '../par/guard.ts'
import type { Resources } from './resources.ts'
import { serverEvents } from './server-events.ts'

/** Creates what opens the guards of the PAR and the authorisation endpoint, for one configuration after another. */
export function createGuards({ createPool }: Resources, log: Pick<Log, 'info' | 'warn'>) {
  const clientKeys = createPool<Pick<Client, 'id' | 'jwks'>, ReturnType<typeof createClientKeys>>()

  const keysOf = ({ id, jwks }: Client) =>
    jwks &&
    clientKeys.get({ id, jwks }, () => {
      const events = serverEvents(log, 'client JWKS fetch', { client: id })
      return createClientKeys({ issuer: id, jwks: 'url' in jwks ? jwks.url : jwks, events })
    })

  /** Opens the guards for the clients of their issuer; undefined without `par`. */
  function openGuards(config: Config) {
    const { par } = config
    if (par === undefined) return undefined
    const listed = listClients(config, par.issuer)
    // Only the folded ids that differ: `listed` has the others, and there may be 100,000.
    const spellings = new Set([...listed.values()].flatMap(({ id, folded }) => (folded === id ? [] : folded)))

    const opened = new Map<string, ParClient>()
    /** Opens a client's keys when they are first needed. */
    function clientOf(id: string): ParClient | undefined {
      const client = listed.get(id)
      if (client && !opened.has(id)) opened.set(id, { ...client, keys: keysOf(client) })
      return opened.get(id)
    }
    // Keys that are open stay open over a reload.
    for (const { id } of clientKeys.settings()) clientOf(id)
    const options = {
      ...par,
      clientOf,
      isLookAlike(id: string): boolean {
        const folded = foldClientId(id)
        return spellings.has(folded) || (folded !== id && listed.has(folded))
      },
    }
    return { par: createParGuard(options), authorization: createAuthorizationGuard(options) }
  }

  return openGuards
}

/** Returns the clients of an issuer by id. If two have the same id, the client that names the issuer counts. */
function listClients({ clients, tokens }: Config, issuer: string): ReadonlyMap<string, Client> {
  const unnamed = clients.filter((client) => client.issuer === undefined)
  const issuerNames = tokens.find(({ names }) => names.includes(issuer))?.names ?? [issuer]
  const named = clients.filter((client) => client.issuer !== undefined && issuerNames.includes(client.issuer))
  return new Map([...unnamed, ...named].map((client) => [client.id, client]))
}
