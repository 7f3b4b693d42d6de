import type { Config, StoreConfig } from '../config/schema.ts'

/** The effective configuration for people: what listens, counts and answers, and the routes in the order of matching. */
export function describeConfig(config: Config): string {
  const { listen, admin, upstreams, tokens, limits, routes } = config
  return [
    table([
      ['listen', address(listen), describeListen(listen)],
      ['admin', address(admin), ''],
      ['store', ...describeStore(config.store)],
      ...(tokens
        ? [['tokens', tokens.issuer, `for ${several(tokens.audience)}, keys ${describeKeys(tokens.jwks)}`]]
        : []),
    ]),
    table([
      ['UPSTREAM', 'ORIGIN', 'TIMEOUT', 'CONNECT', 'CONNECTIONS'],
      ...upstreams.map(({ name, origin, timeoutMs, connectTimeoutMs, maxConnections }) => [
        name,
        origin,
        duration(timeoutMs),
        duration(connectTimeoutMs),
        String(maxConnections),
      ]),
    ]),
    limits.length > 0 &&
      table([
        ['LIMIT', 'CALLS', 'WINDOW', 'PER'],
        ...limits.map(({ name, limit, windowMs, per }) => [
          name,
          String(limit),
          duration(windowMs),
          several(per),
        ]),
      ]),
    table([
      ['ROUTE', 'UPSTREAM', 'AUTHENTICATE', 'LIMITS', 'MAX BODY', 'TIMEOUT'],
      ...routes.map(({ match, upstream, authenticate, limits, maxBody, timeoutMs }) => [
        match,
        upstream,
        authenticate,
        several(limits.map(({ name }) => name)),
        size(maxBody),
        duration(timeoutMs ?? upstreams.find(({ name }) => name === upstream)!.timeoutMs),
      ]),
    ]),
  ]
    .filter(Boolean)
    .join('\n\n')
}

/** The effective configuration for programs, as JSON without secrets. */
export function configAsJson(config: Config): string {
  const { routes, store } = config
  const plain = {
    ...config,
    store:
      store === 'memory'
        ? store
        : { ...store, redis: { ...store.redis, url: withoutSecrets(store.redis.url) } },
    routes: routes.map(({ match, upstream, authenticate, limits, maxBody, timeoutMs }) => ({
      match,
      upstream,
      authenticate,
      limits: limits.map(({ name }) => name),
      maxBody,
      timeoutMs,
    })),
  }
  return JSON.stringify(plain, undefined, 2)
}

function describeListen({ hosts, trustedProxies }: Config['listen']): string {
  const served = hosts.length > 0 ? [`serves ${several(hosts)}`] : []
  const believed = trustedProxies.length > 0 ? [`believes the proxies ${several(trustedProxies)}`] : []
  return [...served, ...believed].join('; ')
}

function describeStore(store: StoreConfig): readonly [string, string] {
  if (store === 'memory') return ['memory', 'counts in this process alone']
  const { redis, prefix, timeoutMs } = store
  return [withoutSecrets(redis.url), `keys start with "${prefix}", a decision waits ${duration(timeoutMs)}`]
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

const UNITS_MS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
] as const
const UNITS_BYTES = [
  ['GB', 1024 ** 3],
  ['MB', 1024 ** 2],
  ['kB', 1024],
  ['B', 1],
] as const

const duration = (ms: number): string => inUnits(ms, UNITS_MS, '0s')
const size = (bytes: number): string => inUnits(bytes, UNITS_BYTES, '0B')

/** In the largest unit that leaves a whole number. */
function inUnits(value: number, units: readonly (readonly [string, number])[], zero: string): string {
  const unit = units.find(([, one]) => value >= one && value % one === 0)
  return unit ? `${value / unit[1]}${unit[0]}` : zero
}

/** Columns as wide as their widest cell, two spaces apart. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)))
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
