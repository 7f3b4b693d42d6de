import { problemLine } from '../config/problem.ts'
import type { Config, StoreConfig } from '../config/schema.ts'
import type { RedisTopology } from '../limit/redis-options.ts'
import { table } from './table.ts'
import { duration, instant, size } from './units.ts'

/** The effective configuration for people: what listens, counts and answers, and the routes in the order of matching. */
export function describeConfig(config: Config): string {
  const { listen, admin, upstreams, tokens, warnings } = config
  return [
    table([
      ['listen', address(listen), describeListen(listen)],
      ['admin', address(admin), admin.token === undefined ? '' : 'limits are read and reset with the token'],
      ['store', ...describeStore(config.store)],
      ...(tokens
        ? [['tokens', tokens.issuer, `for ${several(tokens.audience)}, keys ${describeKeys(tokens.jwks)}`]]
        : []),
    ]),
    rows(
      ['UPSTREAM', 'ORIGIN', 'TIMEOUT', 'CONNECT', 'CONNECTIONS'],
      upstreams.map(({ name, origin, timeoutMs, connectTimeoutMs, maxConnections }) => [
        name,
        origin,
        duration(timeoutMs),
        duration(connectTimeoutMs),
        String(maxConnections),
      ]),
    ),
    ...describeLimits(config),
    describeRoutes(config),
    warnings.map((warning) => `warning: ${problemLine(warning)}`).join('\n'),
  ]
    .filter(Boolean)
    .join('\n\n')
}

function describeLimits({ limits, clients, clientLimits }: Config): readonly string[] {
  return [
    rows(
      ['LIMIT', 'CALLS', 'WINDOW', 'PER', 'MODE'],
      limits.map(({ name, limit, windowMs, per, shadow }) => [
        name,
        String(limit),
        duration(windowMs),
        several(per),
        shadow ? 'shadow' : 'live',
      ]),
    ),
    rows(
      ['CHANGE', 'CALLS', 'FROM', 'ANNOUNCED'],
      limits.flatMap(({ name, changes }) =>
        changes.map(({ limit, fromAt, announcedAt }) => [
          name,
          String(limit),
          instant(fromAt),
          instant(announcedAt),
        ]),
      ),
    ),
    rows(
      ['CLIENT', 'NAME', 'LIMIT', 'CALLS', 'WINDOW', 'UNTIL'],
      clients.flatMap(({ id, name = '-' }) =>
        [...(clientLimits.get(id) ?? [])].map(([limitName, { limit, windowMs, untilAt }]) => [
          id,
          name,
          limitName,
          String(limit),
          duration(windowMs ?? limits.find((one) => one.name === limitName)!.windowMs),
          untilAt === undefined ? '-' : instant(untilAt),
        ]),
      ),
    ),
  ]
}

function describeRoutes({ routes, upstreams }: Config): string {
  return rows(
    ['ROUTE', 'ANSWERED BY', 'AUTHENTICATE', 'LIMITS', 'MAX BODY', 'TIMEOUT'],
    routes.map(({ match, upstream, respond, authenticate, limits, maxBody, timeoutMs }) => {
      const patience = timeoutMs ?? upstreams.find(({ name }) => name === upstream)?.timeoutMs
      return [
        match,
        upstream ?? `gateway (${respond})`,
        authenticate,
        several(limits.map(({ name }) => name)),
        size(maxBody),
        patience === undefined ? '-' : duration(patience),
      ]
    }),
  )
}

/** A table under its head; nothing where it has no rows. */
function rows(head: readonly string[], body: readonly (readonly string[])[]): string {
  return body.length > 0 ? table([head, ...body]) : ''
}

/** The effective configuration for programs, as JSON without secrets. */
export function configAsJson(config: Config): string {
  const { admin, store, limits, clients, clientLimits, routes, ...rest } = config
  const plain = {
    ...rest,
    admin: { ...admin, token: hidden(admin.token) },
    store: plainStore(store),
    clients: clients.map(({ id, name }) => ({
      id,
      name,
      limits: Object.fromEntries(
        [...(clientLimits.get(id) ?? [])].map(([limitName, { limit, windowMs, untilAt }]) => [
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
    routes: routes.map(({ match, upstream, respond, authenticate, limits, maxBody, timeoutMs }) => ({
      match,
      upstream,
      respond,
      authenticate,
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

function plainTopology(topology: RedisTopology): RedisTopology {
  if ('url' in topology) return { url: withoutSecrets(topology.url) }
  if ('cluster' in topology) return { cluster: topology.cluster.map(withoutSecrets) }
  return { ...topology, sentinelPassword: hidden(topology.sentinelPassword) }
}

function hidden(secret: string | undefined): string | undefined {
  return secret === undefined ? undefined : '***'
}

function describeListen({ hosts, trustedProxies }: Config['listen']): string {
  const served = hosts.length > 0 ? [`serves ${several(hosts)}`] : []
  const believed = trustedProxies.length > 0 ? [`believes the proxies ${several(trustedProxies)}`] : []
  return [...served, ...believed].join('; ')
}

function describeStore(store: StoreConfig): readonly [string, string] {
  if (store === 'memory') return ['memory', 'counts in this process alone']
  const { redis, prefix, timeoutMs, onOutage, instances } = store
  const outage = {
    local: instances === 1 ? 'then this process counts' : `then each of ${instances} counts its part`,
    allow: 'then every call passes',
    deny: 'then it is refused with 503',
  }[onOutage]
  return [
    describeTopology(plainTopology(redis.topology)),
    `keys start with "${prefix}", a decision waits ${duration(timeoutMs)}, ${outage}`,
  ]
}

function describeTopology(topology: RedisTopology): string {
  if ('url' in topology) return topology.url
  if ('cluster' in topology) return `cluster at ${several(topology.cluster)}`
  return `"${topology.name}" of the sentinels ${several(topology.sentinels)}`
}

function describeKeys(jwks: NonNullable<Config['tokens']>['jwks']): string {
  if (jwks === undefined) return 'by discovery'
  return `from ${'url' in jwks ? jwks.url : jwks.file}`
}

function several(words: readonly string[]): string {
  return words.join(', ') || '-'
}

/** The URL as it may be shown: without user and password. */
function withoutSecrets(url: string): string {
  return url.replace(/^(rediss?:\/\/).*@/s, '$1')
}

function address({ host, port }: { readonly host: string; readonly port: number }): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`
}
