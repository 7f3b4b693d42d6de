import { countedBy } from '../../limit/parameters.ts'
import { certificatesOf, endsSoon, invalidity, remaining } from '../certificates.ts'
import type { Config } from '../schema.ts'
import type { Issue, Path } from '../yaml/issue.ts'

type Compiled = Omit<Config, 'warnings'>

/** What is not wrong, but probably not meant either: what has no effect (any more), and what is left open. */
export function* warningsOf(config: Compiled, nowMs: number): Generator<Issue> {
  const { admin, store } = config
  if (!admin.onLoopback && admin.token === undefined) {
    const message = 'is reached from other machines, so /limits is refused here; set admin.token'
    yield { path: ['admin', 'host'], message }
  }
  if (store !== 'memory' && store.redis.tls?.rejectUnauthorized === false) {
    const message = 'trusts any server that answers for Redis; write "ca" in place of it'
    yield { path: ['store', 'redis', 'tls', 'rejectUnauthorized'], message }
  }
  yield* reachable(config)
  yield* certificates(config, nowMs)
  yield* identity(config)
  yield* limits(config, nowMs)
  yield* parameters(config)
  yield* ownLimits(config, nowMs)
}

/** Trusted proxies that any caller can pretend to be, and upstreams that no route names. */
function* reachable({ listen, upstreams, routes }: Compiled): Generator<Issue> {
  for (const [i, range] of listen.trustedProxies.entries()) {
    if (!/\/0+$/.test(range)) continue
    const message =
      'lets every caller set X-Forwarded-For and Client-Cert; write the addresses of your proxies'
    yield { path: ['listen', 'trustedProxies', i], message }
  }
  const message = 'is named by no route, so nothing is sent to it'
  for (const { name } of upstreams)
    if (!routes.some(({ upstream }) => upstream === name))
      yield { path: ['upstreams', name], message, key: true }
}

/** Certificates that the gateway presents; of authorities, an old one may be left beside its successor. */
function* certificates(config: Compiled, nowMs: number): Generator<Issue> {
  for (const one of certificatesOf(config)) {
    if (one.path.at(-1) !== 'cert') continue
    const soon = endsSoon(one, nowMs) ? `is valid for ${remaining(one, nowMs)}; renew it` : undefined
    const message = invalidity(one, nowMs) ?? soon
    if (message !== undefined) yield { path: one.path, message }
  }
}

const mustSign = ({ requestObjectSigningAlg = 'none' }) => requestObjectSigningAlg !== 'none'
const UNGUARDED = 'has no effect, because no route says "authenticate: par"'

/** Rules of the PAR and the authorisation endpoint that are never enforced. */
function* identity({ par, routes, clients }: Compiled): Generator<Issue> {
  const isGuarded = routes.some(({ authenticate }) => authenticate === 'par')
  const isChecked = routes.some(({ authenticate }) => authenticate === 'authorization')
  if (isGuarded && !isChecked && clients.some(mustSign)) {
    const message =
      'have none with "authenticate: authorization", so the authorisation endpoint accepts plain parameters of clients that must sign'
    yield { path: ['routes'], message, key: true }
  }
  if (par !== undefined && !isGuarded) yield { path: ['par'], message: UNGUARDED, key: true }
  for (const [i, client] of clients.entries()) {
    if (client.pushed !== undefined && !isChecked) {
      const message = 'has no effect, because no route says "authenticate: authorization"'
      yield { path: ['clients', i, 'pushed'], message, key: true }
    }
    const { requestObjectSigningAlg: alg, authentication, jwks, issuer } = client
    const given = (['requestObjectSigningAlg', 'authentication', 'jwks'] as const).find(
      (key) => client[key] !== undefined,
    )
    const elsewhere = issuer !== undefined && issuer !== par?.issuer
    if (given !== undefined && (!isGuarded || elsewhere)) {
      const key = given === 'jwks' && 'url' in jwks! ? 'jwksUri' : given
      const message = isGuarded ? 'has no effect, because the issuer of "par" is another' : UNGUARDED
      yield { path: ['clients', i, key], message, key: true }
    } else if (jwks === undefined) {
      const isSigned = alg !== undefined && alg !== 'none' && !alg.startsWith('HS')
      const key =
        authentication === 'private_key_jwt' ? 'authentication' : isSigned && 'requestObjectSigningAlg'
      const message = 'is compared here, but no signature is verified; for that, write "jwks" or "jwksUri"'
      if (key) yield { path: ['clients', i, key], message }
    }
  }
}

function* limits({ limits, routes }: Compiled, nowMs: number): Generator<Issue> {
  for (const limit of limits) {
    const { name, changes } = limit
    const path = ['limits', name]
    if (!routes.some(({ limits }) => limits.includes(limit)))
      yield { path, message: 'is named by no route, so it limits nothing', key: true }
    const last = changes.findLastIndex(({ fromAt }) => fromAt <= nowMs)
    if (last === -1) continue
    const message = `has passed; write limit: ${changes[last]!.limit} for "${name}" and take this change out`
    yield { path: [...path, 'changes', last, 'from'], message }
  }
}

function* parameters({ parameters, routes }: Compiled): Generator<Issue> {
  const counted = new Set(routes.flatMap(countedBy))
  for (const name of Object.keys(parameters)) {
    if (counted.has(name)) continue
    const message = 'has no effect, because no limit of a route with it counts by it'
    yield { path: ['parameters', name], message, key: true }
  }
}

function* ownLimits({ clients, clientLimits, limits }: Compiled, nowMs: number): Generator<Issue> {
  for (const [i, { id, caller }] of clients.entries()) {
    const message = 'begins or ends with a blank; take it out if it is not meant'
    if (id !== id.trim()) yield { path: ['clients', i, 'id'], message }
    for (const [name, { limit, windowMs, untilAt }] of clientLimits.get(caller) ?? []) {
      const path: Path = ['clients', i, 'limits', name]
      const general = limits.find((one) => one.name === name)!
      if (untilAt !== undefined && untilAt <= nowMs) {
        const message = 'has passed, so this limit has no effect any more; take it out'
        yield { path: [...path, 'until'], message }
      } else if (
        general.changes.length === 0 &&
        limit === general.limit &&
        (windowMs ?? general.windowMs) === general.windowMs
      ) {
        yield { path, message: `is what "${name}" is for every client; take it out`, key: true }
      }
    }
  }
}
