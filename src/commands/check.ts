import { problemLine } from '../config/yaml/problem.ts'
import type { Config, StoreConfig } from '../config/schema.ts'
import type { RedisTopology } from '../limit/redis/options.ts'
import { countedBy, kindOf } from '../limit/parameters.ts'
import { plainTopology } from './check-json.ts'
import { describeClientCertificates, describeClients, describeIdentity } from './check-identity.ts'
import { rows, several, table } from './table.ts'
import { duration, instant, size } from './units.ts'

/** The effective configuration for people: what listens, counts and answers, and the routes in the order of matching. */
export function describeConfig(config: Config): string {
  const { listen, admin, upstreams, warnings } = config
  return [
    table([
      ['listen', address(listen, listen.tls && 'https'), describeListen(config)],
      ['admin', address(admin), admin.token === undefined ? '' : 'limits are read and reset with the token'],
      ['store', ...describeStore(config.store)],
      ...describeIdentity(config),
    ]),
    rows(
      ['UPSTREAM', 'ORIGIN', 'TIMEOUT', 'CONNECT', 'CONNECTIONS'],
      upstreams.map(({ name, origins, timeoutMs, connectTimeoutMs, maxConnections }) => [
        name,
        several(origins),
        duration(timeoutMs),
        duration(connectTimeoutMs),
        String(maxConnections),
      ]),
    ),
    ...describeLimits(config),
    describeClients(config),
    describeParameters(config),
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
      clients.flatMap(({ caller, name = '-' }) =>
        [...(clientLimits.get(caller) ?? [])].map(([limitName, { limit, windowMs, untilAt }]) => [
          caller,
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
    routes.map(({ match, upstream, respond, authenticate, scope, limits, maxBody, timeoutMs }) => {
      const patience = timeoutMs ?? upstreams.find(({ name }) => name === upstream)?.timeoutMs
      return [
        match,
        upstream ?? `gateway (${respond})`,
        [authenticate, ...scope].join(' '),
        several(limits.map(({ name }) => name)),
        size(maxBody),
        patience === undefined ? '-' : duration(patience),
      ]
    }),
  )
}

/** The path parameters that limits count by. */
function describeParameters({ parameters, routes }: Config): string {
  const counted = new Set(routes.flatMap(countedBy))
  return rows(
    ['PARAMETER', 'KIND'],
    [...counted].map((name) => [`:${name}`, kindOf(name, parameters)]),
  )
}

function describeListen({ listen: { hosts, trustedProxies, tls }, routes }: Config): string {
  const shown = describeClientCertificates(tls)
  const open = routes.some((route) => route.host === undefined && route.hosts === undefined)
  const named = [...hosts, ...(open ? ['any other host on routes that name none'] : [])]
  const served = [`serves ${several(named)}`]
  const believed = trustedProxies.length > 0 ? [`believes the proxies ${several(trustedProxies)}`] : []
  return [...served, ...shown, ...believed].join('; ')
}

function describeStore(store: StoreConfig): readonly [string, string] {
  if (store === 'memory') return ['memory', 'counts in this process alone']
  const { redis, prefix, timeoutMs, onOutage, instances } = store
  const outage = {
    local: `then each ${instances === undefined ? 'gateway' : `of ${instances}`} counts its part`,
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

function address({ host, port }: { readonly host: string; readonly port: number }, scheme = 'http'): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
}
