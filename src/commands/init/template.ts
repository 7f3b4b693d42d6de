import { type InitSettings, matchesOf } from './prompts.ts'

/** The environment variable that holds the password of Redis. */
export const PASSWORD = 'REDIS_PASSWORD'

/** What the discovery document of the identity backend says, or `guessed` if it does not answer. */
export interface FoundIssuer {
  /** The URL of the issuer's keys; undefined if discovery finds it at each start. */
  readonly jwks: string | undefined
  readonly guessed: boolean
  /** The paths of the PAR endpoint and of the authorisation endpoint. */
  readonly pushed: string
  readonly authorization: string
}

/** A configuration with comments; the password of Redis is not in it. With `schema`, editors find the schema beside it. */
export function configText(answers: InitSettings, found: FoundIssuer, schema: boolean): string {
  const { identity, data, issuer, audience, open } = answers
  const { host, path, api } = hostsOf(answers)
  const isHere = identity !== ''
  const shared = api === host
  const hosts = shared || !isHere ? [api] : [host, api]
  const identityRoutes = [
    route(`POST ${host}${found.pushed}`, 'identity', 'par'),
    route(`GET,POST ${host}${found.authorization}`, 'identity', 'authorization'),
    ...(shared ? [`${host}${path}/*`, `${host}/.well-known/*`] : [`${host}/*`]).map((match) =>
      route(match, 'identity', 'none'),
    ),
  ]
  const openRoutes = matchesOf(open).map((match) => route(match, 'data', 'none'))
  const jwks =
    found.jwks === undefined
      ? '# jwks: https://… # where its keys are; by default found by its discovery document'
      : `jwks: ${quoted(found.jwks)} # ${found.guessed ? 'a guess: "sluice check --connect" tries it' : 'at the backend itself, which is asked for the keys'}`
  const parSection = `par: # what is enforced on routes with par and authorization
  issuer: ${quoted(issuer)}
  unknownClients: forward # or refuse: clients that are not listed below

`
  return `${schema ? '# yaml-language-server: $schema=./sluice.schema.json\n#\n' : ''}\
# Written by "sluice init". "sluice check --config FILE" shows what it means, with every default.
# Any value may contain "\${NAME}" or "\${NAME:-default}" of the environment.
# Durations need a unit (ms, s, m, h, d), and so do sizes (B, kB, MB, GB).

listen: # where callers connect
  host: 0.0.0.0
  port: 8080
  # tls: { cert: gateway.pem, key: gateway.key } # HTTPS instead of HTTP; relative to this file
  trustedProxies: [] # your load balancers, such as [10.0.0.0/8]: their X-Forwarded-* and Client-Cert are trusted
  hosts: ${listed(hosts)} # the names by which callers reach it; others get 400

admin: # the console, health, readiness, metrics, showing and resetting limits: keep callers away from it
  host: 127.0.0.1
  port: 9090
  # token: "\${ADMIN_TOKEN}" # the operators' bearer token; required off loopback

store: # where the counters are, for all gateways together
  redis:
${redisLines(answers.redis)}
  onOutage: local # while Redis is down: local counts in this process, allow admits every call, deny answers 503

upstreams: # the backends
${isHere ? `  identity: { url: ${quoted(identity)} }\n` : ''}\
  data: { url: ${quoted(data)} }

tokens: # how callers authenticate on routes with bearer
  issuer: ${quoted(issuer)}
  audience: ${quoted(audience)}
  ${jwks}

${isHere ? parSection : ''}# clients: # API clients with settings of their own
#   - { id: 9f2d6c1e-example, name: Acme, limits: { requests: { limit: 5000 } } }

limits: # by the names that routes use
  requests: { per: [client], limit: 1000, window: 1m } # exact: in any minute, wherever it starts
  sync: { per: [client, connection], limit: 1, window: 5s }

parameters: # what an id in a path may be; others get 400
  connection: plain # letters, digits, -_:@~=; or uuid, integer or a regular expression: narrow it to what yours are

routes: # the first match wins; match is [METHOD[,METHOD]] [host]/path, ":name" one segment, a last "*" the rest
${[...(isHere ? identityRoutes : []), ...openRoutes].join('')}\
  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer } # a caller's own limits
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "POST /:version/sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }
`
}

const route = (match: string, upstream: string, authenticate: string): string =>
  `  - { match: ${quoted(match)}, upstream: ${upstream}, authenticate: ${authenticate} }\n`

/** The host and path of the issuer, and the host of the API. */
function hostsOf({ issuer, api }: InitSettings) {
  const { hostname: host, pathname } = new URL(issuer)
  return { host, path: pathname.replace(/\/$/, ''), api: new URL(api).hostname }
}

function redisLines(redis: string): string {
  const { url, username, password } = splitRedis(redis)
  return [
    `url: ${quoted(url)}`,
    ...(username === undefined ? [] : [`username: ${quoted(username)}`]),
    ...(password === undefined ? [] : [`password: "\${${PASSWORD}}" # or file:/run/secrets/redis`]),
  ]
    .map((line) => `    ${line}`)
    .join('\n')
}

/** A URL of Redis without its credentials, and these. */
export function splitRedis(redis: string) {
  if (!redis.includes('@')) return { url: redis }
  const url = new URL(redis)
  const [username, password] = [url.username, url.password].map(
    (part) => decodeURIComponent(part) || undefined,
  )
  url.username = ''
  url.password = ''
  return { url: url.href, username, password }
}

/** A YAML text that stands for nothing but itself. */
function quoted(text: string): string {
  return JSON.stringify(text.replaceAll('${', () => '$${'))
}

function listed(words: readonly string[]): string {
  return `[${words.map((word) => (/^[\w.-]+$/.test(word) ? word : quoted(word))).join(', ')}]`
}
