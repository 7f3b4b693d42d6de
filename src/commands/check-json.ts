import { shownUrl } from '../authenticate/token/fetch-json.ts'
import type { Config, StoreConfig } from '../config/schema.ts'
import type { RedisTopology } from '../limit/redis/options.ts'
import { instant } from './units.ts'

/** The effective configuration for programs, as JSON without secrets. */
export function configAsJson(config: Config): string {
  const { listen, admin, store, upstreams, tokens, limits, clients, clientLimits, routes, ...rest } = config
  const plain = {
    listen: { ...listen, tls: listen.tls && { ...listen.tls, key: hidden(listen.tls.key) } },
    ...rest,
    admin: { ...admin, token: hidden(admin.token) },
    store: plainStore(store),
    upstreams: upstreams.map(({ tls, ...upstream }) => ({
      ...upstream,
      tls: tls && { ...tls, key: hidden(tls.key) },
    })),
    tokens: tokens.map(({ introspection, jwks, ...issuer }) => ({
      ...issuer,
      jwks: jwks && withoutQuery(jwks),
      introspection: introspection && {
        ...introspection,
        url: shownUrl(introspection.url),
        clientSecret: hidden(introspection.clientSecret),
      },
    })),
    clients: clients.map(({ caller, jwks, ...client }) => ({
      ...client,
      plain: undefined,
      jwks: jwks && withoutQuery(jwks),
      limits: Object.fromEntries(
        [...(clientLimits.get(caller) ?? [])].map(([limitName, { limit, windowMs, untilAt }]) => [
          limitName,
          { limit, windowMs, until: untilAt === undefined ? undefined : instant(untilAt) },
        ]),
      ),
    })),
    limits: limits.map(({ name, per, limit, windowMs, shadow, changes }) => ({
      name,
      per,
      limit,
      windowMs,
      shadow,
      changes: changes.map(({ announcedAt, fromAt, limit }) => ({
        announced: instant(announcedAt),
        from: instant(fromAt),
        limit,
      })),
    })),
    routes: routes.map(({ match, upstream, respond, authenticate, scope, limits, maxBody, timeoutMs }) => ({
      match,
      upstream,
      respond,
      authenticate,
      scope,
      limits: limits.map(({ name }) => name),
      maxBody,
      timeoutMs,
    })),
  }
  return JSON.stringify(plain, undefined, 2)
}

function plainStore(store: StoreConfig): unknown {
  if (store === 'memory') return store
  const { redis, ...rest } = store
  const { topology, username, password, tls } = redis
  return {
    ...rest,
    redis: {
      ...plainTopology(topology),
      username: hidden(username),
      password: hidden(password),
      tls: tls && { ...tls, key: hidden(tls.key) },
    },
  }
}

/** Where Redis is, as it may be shown: without users and passwords. */
export function plainTopology(topology: RedisTopology): RedisTopology {
  if ('url' in topology) return { url: withoutSecrets(topology.url) }
  if ('cluster' in topology) return { cluster: topology.cluster.map(withoutSecrets) }
  return { ...topology, sentinelPassword: hidden(topology.sentinelPassword) }
}

function withoutQuery<Place extends object>(place: Place): Place {
  return 'url' in place ? { ...place, url: shownUrl(String(place.url)) } : place
}

function hidden(secret: string | undefined): string | undefined {
  return secret === undefined ? undefined : '***'
}

/** The URL as it may be shown: without user and password. */
function withoutSecrets(url: string): string {
  return url.replace(/^(rediss?:\/\/).*@/s, '$1')
}
