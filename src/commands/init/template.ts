import { type InitSettings, matchesOf, MEMORY } from './prompts.ts'

export const PASSWORD = 'REDIS_PASSWORD'

export interface FoundIssuer {
  /** The URL of the issuer's keys; undefined if discovery finds it at each start. */
  readonly jwks: string | undefined
  /** True if the backend has no discovery document. */
  readonly guessed: boolean
  /** The paths of the PAR endpoint and of the authorisation endpoint. */
  readonly pushed: string
  readonly authorization: string
}

/** Returns a configuration with comments, without the password of Redis. `schema` names the schema file for editors. */
export function bankingText(settings: InitSettings, found: FoundIssuer, schema: boolean): string {
  const { identity, data, issuer, audience } = settings
  const { hostname: host, pathname } = new URL(issuer)
  const { hostname: api } = new URL(settings.api)
  const path = pathname.replace(/\/$/, '')
  const isHere = identity !== ''
  const isShared = api === host
  const open = isShared ? [`${host}${path}/*`, `${host}/.well-known/*`] : [`${host}/*`]
  const identityRoutes = [
    route(`POST ${host}${found.pushed}`, 'identity', 'par'),
    route(`GET,POST ${host}${found.authorization}`, 'identity', 'authorization'),
    ...open.map((match) => route(match, 'identity', 'none')),
  ]
  const openRoutes = matchesOf(settings.open).map((match) => route(match, 'data', 'none'))
  const origin = found.guessed ? 'a guess: "sluice check --connect" tries it' : 'the address of the backend'
  const jwks = found.jwks
    ? `jwks: ${quoted(found.jwks)} # ${origin}`
    : '# jwks: https://… # URL of the keys; by default found by discovery'
  const par = `par: # what is enforced on routes with par and authorization
  issuer: ${quoted(issuer)}
  unknownClients: forward # or refuse: clients that are not listed below

`
  const hosts = `hosts: [${(isShared || !isHere ? [api] : [host, api]).map(quoted).join(', ')}]`
  return `${beginning(settings, hosts, schema)}
upstreams: # the backends
${isHere ? `  identity: { url: ${quoted(identity)} }\n` : ''}\
  data: { url: ${quoted(data)} }

tokens: # how callers authenticate on routes with bearer
  issuer: ${quoted(issuer)}
  audience: ${quoted(audience)}
  ${jwks}

${isHere ? par : ''}# clients: # API clients with settings of their own
#   - { id: 9f2d6c1e-example, name: Acme, limits: { requests: { limit: 5000 } } }

limits: # by the names that routes use
  requests: { per: [client], limit: 1000, window: 1m } # exact: in any minute, wherever it starts
  sync: { per: [client, connection], limit: 1, window: 5s }

parameters: # what an id in a path may be; others get 400
  connection: plain # letters, digits, -_:@~=; or uuid, integer or a regular expression: narrow it to what yours are

${ROUTES}
${[...(isHere ? identityRoutes : []), ...openRoutes].join('')}\
  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer } # a caller's own limits
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "POST /:version/sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }
`
}

/** Returns a configuration with comments for an API that authenticates its callers itself. */
export function apiText(settings: InitSettings, schema: boolean): string {
  const hasKeys = settings.for === 'api-keys'
  const limits = hasKeys
    ? `  requests: { per: ["header:x-api-key"], limit: 1000, window: 1m } # a call without the field gets 400
  addresses: { per: [ip], limit: 5000, window: 1m } # the API checks the keys: without this, made-up ones evade the limit

parameters: # what a key may be, 128 characters at most; others get 400. Case makes no difference
  "header:x-api-key": "[A-Za-z0-9._~+/=:@-]+" # a regular expression, or uuid, integer: narrow it to what yours are
`
    : `  requests: { per: [ip], limit: 1000, window: 1m } # exact: in any minute, wherever it starts
`
  return `${beginning(settings, '# hosts: [api.example.com]', schema)}
upstreams: # the backends
  api: { url: ${quoted(settings.data)} }

limits: # by the names that routes use
${limits}
${ROUTES}
  - { match: "/*", upstream: api, authenticate: none, limits: [requests${hasKeys ? ', addresses' : ''}] }
`
}

const ROUTES =
  'routes: # the first match wins; match is [METHOD[,METHOD]] [host]/path, ":name" one segment, a last "*" the rest'

/** Returns the sections that every configuration has. */
function beginning({ redis }: InitSettings, hosts: string, schema: boolean): string {
  const { url, username, password } = splitRedis(redis)
  const shared = `store: # where the counters are, for all gateways together
  redis:
    url: ${quoted(url)}
${username === undefined ? '' : `    username: ${quoted(username)}\n`}\
${password === undefined ? '' : `    password: "\${${PASSWORD}}" # or file:/run/secrets/redis\n`}\
  onOutage: local # while Redis is down: local counts in this process, allow admits every call, deny answers 503`
  const memory =
    'store: memory # counts in this process only, until it ends; { redis: { url: redis://… } } counts for all together'
  return `${schema ? '# yaml-language-server: $schema=./sluice.schema.json\n#\n' : ''}\
# Written by "sluice init". "sluice check --config FILE" shows what it means, with every default.
# Any value may contain "\${NAME}" or "\${NAME:-default}" of the environment.
# Durations need a unit (ms, s, m, h, d), and so do sizes (B, kB, MB, GB).

listen: # where callers connect
  host: 0.0.0.0
  port: 8080
  # tls: { cert: gateway.pem, key: gateway.key } # HTTPS instead of HTTP; relative to this file
  trustedProxies: [] # your load balancers, such as [10.0.0.0/8]: their X-Forwarded-* and Client-Cert are trusted
  ${hosts} # the names by which callers reach it; others get 400

admin: # the console, health, readiness, metrics, showing and resetting limits: keep callers away from it
  host: 127.0.0.1
  port: 9090
  # token: "\${ADMIN_TOKEN}" # the operators' bearer token; required off loopback

${redis === MEMORY ? memory : shared}
`
}

const route = (match: string, upstream: string, authenticate: string): string =>
  `  - { match: ${quoted(match)}, upstream: ${upstream}, authenticate: ${authenticate} }\n`

/** Splits the credentials from a URL of Redis. */
export function splitRedis(redis: string): { url: string; username?: string; password?: string } {
  if (!redis.includes('@')) return { url: redis }
  const url = new URL(redis)
  const { username, password } = url
  url.username = ''
  url.password = ''
  return {
    url: url.href,
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
  }
}

/** Formats a string as YAML without variables. */
const quoted = (text: string): string => JSON.stringify(text.replaceAll('${', () => '$${'))
