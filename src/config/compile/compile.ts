import { createNames } from '../../authenticate/token/claims.ts'
import type { RedisTopology } from '../../limit/redis/options.ts'
import { plainId } from '../../par/client-authentication.ts'
import type { Client, Config, Settings, StoreConfig } from '../schema.ts'
import type { SharedStoreSettings } from '../sections/store.ts'
import type { Mistake } from '../yaml/problem.ts'
import { compileTokens, uselessKeys } from './keys.ts'
import { createTlsReader, type ReadTls } from './tls.ts'

/** The settings as the gateway's parts take them; what is wrong with the files that they name is added to `mistakes`. */
export async function compile(
  settings: Settings,
  directory: string,
  mistakes: Mistake[],
): Promise<Omit<Config, 'warnings'>> {
  const { upstreams, listen, tokens, routes, limits, par } = settings
  const readTls = createTlsReader(directory, mistakes)
  const issuers = [tokens ?? []].flat()
  const nameOf = createNames(issuers.map(({ issuer }) => issuer))
  const clients = settings.clients.map((client) => ({ ...client, caller: nameOf(client.id, client.issuer) }))
  return {
    ...settings,
    listen: {
      ...listen,
      hosts: listen.hosts ?? [...new Set(routes.flatMap(({ host }) => host ?? []))],
      tls: listen.tls && {
        ...(await readTls(listen.tls, ['listen', 'tls'])),
        requestClientCert: listen.tls.requestClientCert ?? false,
      },
    },
    store: await compileStore(settings.store, readTls),
    upstreams: await Promise.all(
      upstreams.map(async ({ tls, ...rest }) => ({
        ...rest,
        tls: tls && {
          servername: undefined,
          ...(await readTls(tls, ['upstreams', rest.name, 'tls'])),
        },
      })),
    ),
    tokens: await compileTokens(tokens, directory, mistakes),
    clients: await compileClients(clients, mistakes),
    clientLimits: new Map(
      clients.flatMap(({ caller, limits }) => {
        const own = Object.entries(limits)
        return own.length > 0 ? [[caller, new Map(own)]] : []
      }),
    ),
    routes: routes.map((route) => ({
      ...route,
      hosts: route.host === undefined ? listen.hosts : undefined,
      maxBody: route.authenticate === 'par' ? par!.maxBody : route.maxBody,
      limits: route.limits.map((name) => limits.find((limit) => limit.name === name)!),
    })),
  }
}

async function compileStore(store: Settings['store'], readTls: ReadTls): Promise<StoreConfig> {
  if (store === 'memory') return store
  const { username, password, tls: given } = store.redis
  const tls = given === true ? {} : given && (await readTls(given, ['store', 'redis', 'tls']))
  return { ...store, redis: { topology: topologyOf(store.redis), username, password, tls } }
}

/** That one of the three is there was checked before. */
function topologyOf(redis: SharedStoreSettings['redis']): RedisTopology {
  const { url, cluster, sentinels, name, sentinelUsername, sentinelPassword } = redis
  if (cluster !== undefined) return { cluster }
  if (sentinels !== undefined) return { sentinels, name: name!, sentinelUsername, sentinelPassword }
  return { url: url! }
}

async function compileClients(
  clients: readonly (Settings['clients'][number] & Pick<Client, 'caller'>)[],
  mistakes: Mistake[],
): Promise<readonly Client[]> {
  return Promise.all(
    clients.map(async ({ id, issuer, caller, name, jwks, jwksUri, ...par }, i) => {
      const { requestObjectSigningAlg, authentication } = par
      const message = jwks && (await uselessKeys(requestObjectSigningAlg, jwks))
      if (message !== undefined) mistakes.push({ path: ['clients', i, 'jwks', 'keys'], message })
      const keys = jwks ?? (jwksUri === undefined ? undefined : { url: jwksUri })
      return {
        id,
        plain: plainId(id),
        issuer,
        caller,
        name,
        requestObjectSigningAlg,
        authentication,
        jwks: keys,
      }
    }),
  )
}
