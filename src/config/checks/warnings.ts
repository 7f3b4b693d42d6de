import { X509Certificate } from 'node:crypto'
import { countedBy } from '../../limit/parameters.ts'
import type { Config } from '../schema.ts'
import type { Mistake, Path } from '../yaml/problem.ts'

type Compiled = Omit<Config, 'warnings'>

/** What is not wrong, but probably not meant either: what has no effect (any more), and what is left open. */
export function* warningsOf(config: Compiled, nowMs: number): Generator<Mistake> {
  const { admin, store } = config
  if (!admin.onLoopback && admin.token === undefined) {
    const message = `is reached from other machines, and there is no "token", so /limits is refused here; set admin.token to a secret of 16 characters or more`
    yield { path: ['admin', 'host'], message }
  }
  if (store !== 'memory' && store.redis.tls?.rejectUnauthorized === false) {
    const message =
      'trusts any server that answers for Redis; write "ca" with the authority that signed its certificate'
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
function* reachable({ listen, upstreams, routes }: Compiled): Generator<Mistake> {
  for (const [i, range] of listen.trustedProxies.entries()) {
    if (!/\/0+$/.test(range)) continue
    const message =
      'trusts every caller, so that any of them sets X-Forwarded-For and Client-Cert; write the addresses of your proxies'
    yield { path: ['listen', 'trustedProxies', i], message }
  }
  for (const { name } of upstreams) {
    if (routes.some(({ upstream }) => upstream === name)) continue
    yield { path: ['upstreams', name], message: 'is named by no route, so nothing is sent to it', key: true }
  }
}

function* certificates({ listen, upstreams }: Compiled, nowMs: number): Generator<Mistake> {
  yield* certificate(listen.tls?.cert, ['listen', 'tls', 'cert'], 'callers will not connect', nowMs)
  for (const { name, tls } of upstreams) {
    yield* certificate(tls?.cert, ['upstreams', name, 'tls', 'cert'], 'the backend will not take it', nowMs)
  }
}

function* certificate(
  pem: string | undefined,
  path: Path,
  consequence: string,
  nowMs: number,
): Generator<Mistake> {
  if (pem === undefined) return
  const { validFrom, validTo } = new X509Certificate(pem)
  if (Date.parse(validTo) <= nowMs) {
    yield { path, message: `expired at ${validTo}, so ${consequence}; write a new one` }
  } else if (Date.parse(validFrom) > nowMs) {
    yield { path, message: `is not valid before ${validFrom}; ${consequence} until then` }
  }
}

/** Rules of the PAR endpoint that are never enforced. */
function* identity({ par, routes, clients }: Compiled): Generator<Mistake> {
  const isGuarded = routes.some(({ authenticate }) => authenticate === 'par')
  if (par !== undefined && !isGuarded) {
    const message = 'has no effect, because no route says "authenticate: par"'
    yield { path: ['par'], message, key: true }
  }
  for (const [i, client] of clients.entries()) {
    const { requestObjectSigningAlg: alg, authentication, jwks, issuer } = client
    const given = (['requestObjectSigningAlg', 'authentication', 'jwks'] as const).find(
      (key) => client[key] !== undefined,
    )
    const elsewhere = issuer !== undefined && issuer !== par?.issuer
    if (given !== undefined && (!isGuarded || elsewhere)) {
      const key = given === 'jwks' && 'url' in jwks! ? 'jwksUri' : given
      const why = isGuarded ? 'the issuer of "par" is another' : 'no route says "authenticate: par"'
      const message = `has no effect, because ${why}`
      yield { path: ['clients', i, key], message, key: true }
    } else if (jwks === undefined && authentication === 'private_key_jwt') {
      const message =
        'is checked by the identity backend alone; for the gateway to check it too, write "jwks" or "jwksUri"'
      yield { path: ['clients', i, 'authentication'], message }
    } else if (jwks === undefined && alg !== undefined && alg !== 'none' && !alg.startsWith('HS')) {
      const message = 'is compared, but no signature is verified; for that, write "jwks" or "jwksUri"'
      yield { path: ['clients', i, 'requestObjectSigningAlg'], message }
    }
  }
}

function* limits({ limits, routes }: Compiled, nowMs: number): Generator<Mistake> {
  for (const limit of limits) {
    const { name, changes } = limit
    const path = ['limits', name]
    if (!routes.some(({ limits }) => limits.includes(limit))) {
      yield { path, message: 'is named by no route, so it limits nothing', key: true }
    }
    const last = changes.findLastIndex(({ fromAt }) => fromAt <= nowMs)
    if (last === -1) continue
    const message = `has passed; write limit: ${changes[last]!.limit} for "${name}" and take this change out`
    yield { path: [...path, 'changes', last, 'from'], message }
  }
}

function* parameters({ parameters, routes }: Compiled): Generator<Mistake> {
  const counted = new Set(routes.flatMap(countedBy))
  for (const name of Object.keys(parameters)) {
    if (counted.has(name)) continue
    const message = 'has no effect, because no limit of a route with it counts by it'
    yield { path: ['parameters', name], message, key: true }
  }
}

function* ownLimits({ clients, clientLimits, limits }: Compiled, nowMs: number): Generator<Mistake> {
  for (const [i, { id, caller }] of clients.entries()) {
    if (id !== id.trim()) {
      const message = 'begins or ends with a blank, which is part of the id; take it out if it is not meant'
      yield { path: ['clients', i, 'id'], message }
    }
    for (const [name, { limit, windowMs, untilAt }] of clientLimits.get(caller) ?? []) {
      const path: Path = ['clients', i, 'limits', name]
      const general = limits.find((one) => one.name === name)!
      if (untilAt !== undefined && untilAt <= nowMs) {
        const message =
          'has passed, so this limit has no effect any more; take it out or write a later instant'
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
