import { X509Certificate } from 'node:crypto'
import { isSuiteOf13 } from '../downstream/suites.ts'
import { isLoopback } from '../runtime/address.ts'
import { urlsOf } from '../limit/redis/options.ts'
import { chosenKeyWarnings } from './chosen-keys.ts'
import { certificatesOf, describeValidity, isOfLists, type Validity } from './certificates.ts'
import { counterNameOf } from '../policy/key.ts'
import { MAX_LENGTH, PARAMETER_KINDS, statedLength } from '../policy/parameter-kinds.ts'
import type { Compiled } from './config.ts'
import { keylessClientWarnings } from './keyless-clients.ts'
import { uncheckedKeyWarnings } from './unchecked-keys.ts'
import { sharedAddressWarnings } from './teams/shared-addresses.ts'
import { type Issue, issueAt, issueAtKey, type LocatedIssue, type Path } from './yaml/issue.ts'
import type { Env } from './yaml/source.ts'

export function* warningsOf(config: Compiled, nowMs: number): Generator<Issue> {
  yield* insecureSettings(config)
  yield* plaintextWarnings(config)
  yield* corsWarnings(config)
  yield* certificateWarnings(config, nowMs)
  yield* suiteWarnings(config)
  yield* identityWarnings(config)
  yield* clientWarnings(config, nowMs)
  yield* limitWarnings(config)
  yield* upstreamWarnings(config)
  yield* sharedAddressWarnings(config)
  yield* parameterWarnings(config)
  yield* chosenKeyWarnings(config)
  yield* uncheckedKeyWarnings(config)
  yield* keylessClientWarnings(config)
}

function* insecureSettings({ admin, forwardAuth, keys, listen, store }: Compiled): Generator<Issue> {
  if (!admin.onLoopback && !admin.token && admin.tokens.length === 0)
    yield issueAt(
      ['admin', 'host'],
      'is reached from other machines, so /limits is refused here; set admin.token',
    )
  if (keys?.openMode !== undefined) {
    const mode = keys.openMode.toString(8)
    const message = `names ${keys.file}, which others may read or change (mode ${mode}); run chmod g-w,o= on it`
    yield issueAt(['keys', 'file'], message)
  }
  if (forwardAuth !== undefined && !isLoopback(forwardAuth.host))
    yield issueAt(
      ['forwardAuth', 'host'],
      'is reached from other machines and trusts all peers; let only the proxy reach it',
    )
  if (store !== 'memory' && store.redis.tls?.rejectUnauthorized === false)
    yield issueAt(
      ['store', 'redis', 'tls', 'rejectUnauthorized'],
      'trusts any server that answers for Redis; write "ca" instead',
    )
  for (const [i, range] of listen.trustedProxies.entries())
    if (/\/0+$/.test(range))
      yield issueAt(
        ['listen', 'trustedProxies', i],
        'lets callers set X-Forwarded-For and Client-Cert; write your proxies’ addresses',
      )
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

/** True for keys, or an endpoint, at a URL without TLS. */
const lacksTls = (source: object = {}) => 'url' in source && isPlaintext(String(source.url))

const FORGEABLE = 'is read without TLS, so anyone on the path can replace the keys; write https'

/** Warns about secrets and keys that are sent without TLS. */
function* plaintextWarnings({ tokens, clients, store }: Compiled): Generator<Issue> {
  for (const [i, { jwks, introspection }] of tokens.entries()) {
    const path: Path = tokens.length === 1 ? ['tokens'] : ['tokens', i]
    if (lacksTls(jwks)) yield issueAt([...path, 'jwks'], FORGEABLE)
    if (lacksTls(introspection))
      yield issueAt(
        [...path, 'introspection', 'url'],
        'gets the tokens and clientSecret without TLS; write https',
      )
  }
  for (const [i, { jwks }] of clients.entries())
    if (lacksTls(jwks)) yield issueAt(['clients', i, 'jwksUri'], FORGEABLE)
  if (store === 'memory') return
  const { topology, password, tls } = store.redis
  const watched = 'name' in topology && topology.sentinelPassword !== undefined ? topology.sentinels : []
  if (watched.some(isPlaintext))
    yield issueAt(
      ['store', 'redis', 'sentinels'],
      'are reached without TLS, and get sentinelPassword; write rediss://',
    )
  if (tls !== undefined) return
  const isOpen = (url: string) => isPlaintext(url) && (password ?? new URL(url).password) !== ''
  if (urlsOf(topology).some(isOpen))
    yield issueAt(['store', 'redis', 'url'], 'is reached without TLS, and gets the password; write rediss://')
}

/** Warns about pages without TLS that may call with cookies, and settings that no route uses. */
function* corsWarnings({ cors, routes, forwardAuth }: Compiled): Generator<Issue> {
  const own = routes.map((route, i) => ({ settings: route.cors, path: ['routes', i, 'cors'] }))
  const written = own.filter(({ settings }) => settings !== cors)
  for (const { settings, path } of [{ settings: cors, path: ['cors'] }, ...written])
    for (const [i, origin] of (settings?.credentials === true ? settings.origins : []).entries())
      if (isPlaintext(origin))
        yield issueAt(
          [...path, 'origins', i],
          'is without TLS, so anyone on the path can change its pages and call as its visitors; write https',
        )
  if (cors !== undefined && forwardAuth !== undefined && routes.every((route) => !isServedHere(route)))
    yield issueAtKey(['cors'], 'has no effect by "forwardAuth": the proxy must answer browsers')
}

/** True for a route that the callers' listener serves. */
const isServedHere = ({ upstream, respond }: Compiled['routes'][number]): boolean =>
  upstream !== undefined || respond !== undefined

/** True for the gateway's own certificates and for revocation lists. */
const isJudged = (validity: Validity): boolean => validity.path.at(-1) === 'cert' || isOfLists(validity)

/**
 * Warns about certificates that the gateway presents, and about revocation lists. Expired authorities may remain next to their
 * successors.
 */
function* certificateWarnings(config: Compiled, nowMs: number): Generator<Issue> {
  for (const validity of certificatesOf(config).filter(isJudged)) {
    const { state, message } = describeValidity(validity, nowMs)
    if (state !== 'ok') yield issueAt(validity.path, message)
  }
}

/** Matches the suites with forward secrecy and AEAD, without CCM_8, whose tag is short (RFC 9325 section 4.2). */
const STRONG = /^(?:TLS_(?!.*CCM_8)|ECDHE-(?:ECDSA|RSA)-(?:AES(?:128|256)-GCM|CHACHA20))/

/** Warns about weak suites, and about suites that all do not fit the certificate. */
function* suiteWarnings({ listen, admin }: Compiled): Generator<Issue> {
  for (const [section, tls] of Object.entries({ listen: listen.tls, admin: admin.tls })) {
    const names = tls?.ciphers?.split(':') ?? []
    const path: Path = [section, 'tls', 'ciphers']
    const weak = names.filter((name) => !STRONG.test(name))
    if (weak.length > 0)
      yield issueAt(path, `accepts ${weak.join(', ')}, against RFC 9325: no forward secrecy, or CBC; remove`)
    const of12 = names.filter((name) => !isSuiteOf13(name))
    // `check --offline` may lack the certificate.
    if (!tls?.cert) continue
    const isOfEc = keyTypeOf(tls.cert) !== 'rsa'
    const fits = (name: string): boolean => name.includes('-ECDSA-') === isOfEc
    if (of12.length > 0 && !of12.some(fits))
      yield issueAt(path, `has no suite of TLS 1.2 for the key of ${section}.tls.cert; add one`)
  }
}

const keyTypeOf = (cert: string): string | undefined => new X509Certificate(cert).publicKey.asymmetricKeyType

function* identityWarnings({ par, routes, clients }: Compiled): Generator<Issue> {
  const kinds = new Set(routes.map(({ authenticate }) => authenticate))
  if (par !== undefined && !kinds.has('par'))
    yield issueAtKey(['par'], 'has no effect, because no route has "authenticate: par"')
  for (const [i, client] of clients.entries()) {
    const { requestObjectSigningAlg: alg = 'none', authentication, jwks, pushed } = client
    const lacksPar = !kinds.has('par') && (alg !== 'none' || authentication)
    const lacksAuthorization = !kinds.has('authorization') && (alg !== 'none' || pushed)
    const isSigned = authentication === 'private_key_jwt' || !/^(?:none|HS)/.test(alg)
    if (lacksPar) yield issueAt(['clients', i], 'is not checked: no route has "authenticate: par"; write one')
    else if (lacksAuthorization)
      yield issueAt(['clients', i], 'is not checked: no route has "authenticate: authorization"; write one')
    else if (isSigned && jwks === undefined)
      yield issueAt(['clients', i], 'has signatures that are not verified; write "jwks" or "jwksUri"')
  }
}

/** Warns about own limits that have ended, and about ids that tokens hardly have. */
function* clientWarnings({ clients, clientLimits }: Compiled, nowMs: number): Generator<Issue> {
  const padded = 'begins or ends with a blank, which is compared, too; remove it, unless tokens have it'
  for (const [i, { id }] of clients.entries())
    if (id !== id.trim()) yield { path: ['clients', i, 'id'], message: padded }
  for (const [i, { caller }] of clients.entries())
    for (const [name, { untilAt = Infinity }] of clientLimits.get(caller) ?? [])
      if (untilAt <= nowMs) yield issueAt(['clients', i, 'limits', name, 'until'], 'has passed; remove it')
}

/** Warns about upstreams without a route. */
function* upstreamWarnings({ upstreams, routes }: Compiled): Generator<Issue> {
  const used = new Set(routes.map(({ upstream }) => upstream))
  for (const { name } of upstreams) {
    if (used.has(name)) continue
    yield { path: ['upstreams', name], message: 'has no effect: no route names it', key: true }
  }
}

/** Warns about limits without a route, and those without an effect. */
function* limitWarnings({ limits, routes, forwardAuth }: Compiled): Generator<Issue> {
  const used = new Set(
    routes.flatMap((route) => route.limits.flatMap((one) => [one.name, counterNameOf(one)])),
  )
  for (const { name, isConcurrent } of limits) {
    if (isConcurrent && forwardAuth !== undefined && used.has(name))
      yield issueAtKey(
        ['limits', name, 'concurrent'],
        'has no effect by "forwardAuth": the gateway does not see such a call end',
      )
    if (!used.has(name))
      yield issueAtKey(['limits', name], 'has no effect: no route names it, or each with a cost of 0')
  }
}

/** Warns about expressions that state more characters than a part of a key may have. */
function* parameterWarnings({ parameters }: Compiled): Generator<Issue> {
  for (const [name, { kind = 'plain' }] of Object.entries(parameters))
    if (!PARAMETER_KINDS.includes(kind) && statedLength(kind) > MAX_LENGTH)
      yield issueAt(
        ['parameters', name],
        `accepts values of more than ${MAX_LENGTH} characters, which get a 400: no key has a longer one`,
      )
}

/** Matches options of Node.js that weaken the gateway. */
const WEAKENING = /--(?:insecure-http-parser|security-revert|tls-min-v1\.[01]|inspect)/g

/**
 * Warns about Node.js options that weaken the gateway, on the command line or in the environment.
 */
export function nodeWarnings(env: Env): readonly LocatedIssue[] {
  const given = [...process.execArgv, env['NODE_OPTIONS']].join(' ').replaceAll('_', '-')
  const found: string[] = given.match(WEAKENING) ?? []
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') found.push('NODE_TLS_REJECT_UNAUTHORIZED')
  return found.map((path) => ({ where: 'Node.js', path, message: 'weakens the gateway; remove it' }))
}
