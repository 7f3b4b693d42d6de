import { isLoopback } from '../runtime/address.ts'
import { urlsOf } from '../limit/redis/options.ts'
import { countedBy, partOf } from '../policy/parts.ts'
import { certificatesOf, describeValidity } from './certificates.ts'
import type { Compiled } from './compile.ts'
import type { Issue, LocatedIssue, Path } from './yaml/issue.ts'
import type { Env } from './yaml/source.ts'

export function* warningsOf(config: Compiled, nowMs: number): Generator<Issue> {
  yield* insecureSettings(config)
  yield* plaintextWarnings(config)
  yield* certificateWarnings(config, nowMs)
  yield* identityWarnings(config)
  yield* clientWarnings(config, nowMs)
  yield* limitWarnings(config, nowMs)
  yield* unusedSettings(config)
}

function* insecureSettings({ admin, forwardAuth, listen, store }: Compiled): Generator<Issue> {
  const noToken = 'is reached from other machines, so /limits is refused here; set admin.token'
  if (!admin.onLoopback && admin.token === undefined) yield { path: ['admin', 'host'], message: noToken }
  const believed = 'is reached from other machines and trusts all peers; let only the proxy reach it'
  if (forwardAuth !== undefined && !isLoopback(forwardAuth.host))
    yield { path: ['forwardAuth', 'host'], message: believed }
  const trusting = 'trusts any server that answers for Redis; write "ca" instead'
  if (store !== 'memory' && store.redis.tls?.rejectUnauthorized === false)
    yield { path: ['store', 'redis', 'tls', 'rejectUnauthorized'], message: trusting }
  const message = 'lets every caller set X-Forwarded-For and Client-Cert; write those of your proxies'
  for (const [i, range] of listen.trustedProxies.entries())
    if (/\/0+$/.test(range)) yield { path: ['listen', 'trustedProxies', i], message }
}

/**
 * True for a URL without TLS to another host. Names without a dot are taken for neighbours, such as
 * the services of a Compose file.
 */
function isPlaintext(url: string): boolean {
  if (!/^(?:http|redis):/i.test(url)) return false
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '')
  return /[.:]/.test(host) && !isLoopback(host)
}

/** Warns about secrets and keys that are sent without TLS. */
function* plaintextWarnings({ tokens, clients, store }: Compiled): Generator<Issue> {
  const pathOf = (i: number): Path => (tokens.length === 1 ? ['tokens'] : ['tokens', i])
  const keySets = [
    ...tokens.map(({ jwks }, i) => ({ path: [...pathOf(i), 'jwks'], jwks })),
    ...clients.map(({ jwks }, i) => ({ path: ['clients', i, 'jwksUri'], jwks })),
  ]
  const forgeable = 'is read without TLS, so whoever is on the way can replace the keys; write https'
  for (const { path, jwks } of keySets)
    if (jwks !== undefined && 'url' in jwks && isPlaintext(jwks.url)) yield { path, message: forgeable }
  const secrets = 'gets the tokens and clientSecret without TLS; write https'
  for (const [i, { introspection }] of tokens.entries())
    if (introspection !== undefined && isPlaintext(introspection.url))
      yield { path: [...pathOf(i), 'introspection', 'url'], message: secrets }
  if (store === 'memory' || store.redis.tls !== undefined) return
  const { topology, password } = store.redis
  const message = 'is reached without TLS, and gets the password; write rediss://'
  const isOpen = urlsOf(topology).some(
    (url) => isPlaintext(url) && (password ?? new URL(url).password) !== '',
  )
  if (isOpen) yield { path: ['store', 'redis', 'url'], message }
}

/** Warns about certificates that the gateway presents. Expired authorities may remain next to their successors. */
function* certificateWarnings(config: Compiled, nowMs: number): Generator<Issue> {
  for (const validity of certificatesOf(config).filter(({ path }) => path.at(-1) === 'cert')) {
    const { state, message } = describeValidity(validity, nowMs)
    const remedy = state === 'warning' ? '; renew it' : ''
    if (state !== 'ok') yield { path: validity.path, message: `${message}${remedy}` }
  }
}

const withoutRoute = (kind: string) => `has no effect, because no route has "authenticate: ${kind}"`

function* identityWarnings({ par, routes, clients }: Compiled): Generator<Issue> {
  const hasPar = routes.some(({ authenticate }) => authenticate === 'par')
  const hasAuthorization = routes.some(({ authenticate }) => authenticate === 'authorization')
  const mustSign = clients.some(({ requestObjectSigningAlg = 'none' }) => requestObjectSigningAlg !== 'none')
  const unsigned =
    'have none with "authenticate: authorization", so the authorisation endpoint accepts unsigned parameters of clients that must sign'
  if (hasPar && !hasAuthorization && mustSign) yield { path: ['routes'], message: unsigned, key: true }
  if (par !== undefined && !hasPar) yield { path: ['par'], message: withoutRoute('par'), key: true }
  for (const [i, client] of clients.entries()) {
    const { pushed, requestObjectSigningAlg: alg = 'none', authentication, jwks, issuer } = client
    if (pushed !== undefined && !hasAuthorization)
      yield { path: ['clients', i, 'pushed'], message: withoutRoute('authorization'), key: true }
    const isOfOtherIssuer = issuer !== undefined && issuer !== par?.issuer
    if (!hasPar || isOfOtherIssuer) {
      const keys = ['requestObjectSigningAlg', 'authentication', 'jwks'] as const
      const present = keys.find((key) => client[key] !== undefined)
      const key = present === 'jwks' && 'url' in jwks! ? 'jwksUri' : present
      const message = hasPar ? 'has no effect: "par" has another issuer' : withoutRoute('par')
      if (key !== undefined) yield { path: ['clients', i, key], message, key: true }
    } else if (jwks === undefined) {
      const signed = alg === 'none' || alg.startsWith('HS') ? undefined : 'requestObjectSigningAlg'
      const key = authentication === 'private_key_jwt' ? 'authentication' : signed
      const message = 'is checked, but no signature is verified; write "jwks" or "jwksUri"'
      if (key !== undefined) yield { path: ['clients', i, key], message }
    }
  }
}

function* clientWarnings({ clients, clientLimits, limits }: Compiled, nowMs: number): Generator<Issue> {
  for (const [i, { id, caller }] of clients.entries()) {
    const message = 'begins or ends with a blank; remove it unless it is intended'
    if (id !== id.trim()) yield { path: ['clients', i, 'id'], message }
    for (const [name, { limit, windowMs, untilAt }] of clientLimits.get(caller) ?? []) {
      const path = ['clients', i, 'limits', name]
      const general = limits.find((general) => general.name === name)!
      const isSame = limit === general.limit && (windowMs ?? general.windowMs) === general.windowMs
      if (untilAt !== undefined && untilAt <= nowMs)
        yield { path: [...path, 'until'], message: 'has passed; remove this limit' }
      else if (isSame && general.changes.length === 0)
        yield { path, message: `equals "${name}" of every client; remove it`, key: true }
    }
  }
}

const isChosen = (part: string): boolean => part.startsWith('header:')

/**
 * Warns about limits without a route, changes that have passed, and keys that callers choose, on
 * routes where no other limit bounds their calls.
 */
function* limitWarnings({ limits, routes, forwardAuth }: Compiled, nowMs: number): Generator<Issue> {
  for (const { name, per, changes, isConcurrent } of limits) {
    const users = routes.filter(({ limits }) =>
      limits.some((used) => used.name === name || used.counts === name),
    )
    const unseen =
      'has no effect where a proxy asks by "forwardAuth": the gateway does not see such a call end'
    if (isConcurrent && forwardAuth !== undefined && users.length > 0)
      yield { path: ['limits', name, 'concurrent'], message: unseen, key: true }
    const unused = 'has no effect: no route names it'
    if (users.length === 0) yield { path: ['limits', name], message: unused, key: true }
    const last = changes.findLastIndex(({ fromAt }) => fromAt <= nowMs)
    const passed = `has passed; write limit: ${changes[last]?.limit} for "${name}" and remove this change`
    if (last !== -1) yield { path: ['limits', name, 'changes', last, 'from'], message: passed }
    const isUnbound = users.some(({ limits }) => limits.every(({ per }) => per.some(isChosen)))
    const message =
      'is a value that callers choose, each with a counter; add a limit without it to its routes'
    if (isUnbound) yield { path: ['limits', name, 'per', per.findIndex(isChosen)], message }
  }
}

function* unusedSettings({ upstreams, parameters, routes }: Compiled): Generator<Issue> {
  for (const { name } of upstreams)
    if (!routes.some(({ upstream }) => upstream === name))
      yield { path: ['upstreams', name], message: 'has no effect: no route names it', key: true }
  const counted = new Set(
    routes.flatMap((route) => [...countedBy(route), ...route.limits.flatMap(({ per }) => per)]),
  )
  const message = 'has no effect, because no limit of a route with it counts by it'
  for (const name of Object.keys(parameters))
    if (!counted.has(partOf(name))) yield { path: ['parameters', name], message, key: true }
}

/** Options of Node.js that weaken the gateway, and the effect of each. */
const NODE_OPTIONS: Readonly<Record<string, string>> = {
  '--insecure-http-parser': 'accepts malformed HTTP; Sluice still parses strictly',
  '--security-revert': 'undoes a security fix of Node.js',
  '--tls-min-v1.0': 'allows TLS 1.0 to issuers, Redis and the trace receiver',
  '--tls-min-v1.1': 'allows TLS 1.1 to issuers, Redis and the trace receiver',
  '--inspect': 'opens a debugger port, through which anybody who reaches it runs code here',
}

/** Warns about Node.js options and variables that weaken the gateway, on the command line or in the environment. */
export function* nodeWarnings(env: Env): Generator<LocatedIssue> {
  const words = [...process.execArgv, ...(env['NODE_OPTIONS'] ?? '').split(/\s+/)]
  const options = new Set(
    words.map((word) => word.replaceAll('_', '-').replace(/=.*$|(?<=^--inspect).*$/, '')),
  )
  for (const [option, effect] of Object.entries(NODE_OPTIONS))
    if (options.has(option)) yield { where: 'Node.js', path: option, message: `${effect}; remove it` }
  const message = 'trusts any server that answers for an issuer or the trace receiver; remove it'
  const path = 'NODE_TLS_REJECT_UNAUTHORIZED'
  if (env[path] === '0') yield { where: 'Node.js', path, message }
}
