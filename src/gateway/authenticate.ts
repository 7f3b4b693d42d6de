import type { SenderConstrainedToken } from '../authenticate/token/challenge.ts'
import type { Identity } from '../authenticate/token/claims.ts'
import { senderOf } from '../authenticate/proof/dpop.ts'
import { requireScope } from '../authenticate/token/challenge.ts'
import { tooLarge } from '../downstream/body.ts'
import { clientCertificate } from '../downstream/client-certificate.ts'
import { Refusal } from '../errors.ts'
import type { Caller } from '../limit/limit.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'
import { checkAuthorization, checkPushed } from './par.ts'

type Outcome = Refusal | undefined

/**
 * Finds out who calls, by the rule of the route, and which quotas count the call. 401 where that is not known, 403 where the
 * caller may not do this; of the PAR endpoint 400, 401, 413, 429. A promise only where memory does not answer.
 */
export function authenticate(deps: GatewayDeps, exchange: Exchange): Outcome | Promise<Outcome> {
  const { head, target, trusted, request } = exchange
  const route = exchange.route!
  if (route.authenticate === 'par') return checkPushed(deps, exchange)
  if (route.authenticate === 'authorization') return checkAuthorization(deps, exchange)
  if (route.authenticate === 'none') {
    exchange.caller = { ip: exchange.ip }
    exchange.quotas = route.quotas(exchange.caller, exchange.params)
    return undefined
  }
  const known = deps.authenticate(head.authorization, () =>
    senderOf(request, trusted, {
      path: target!.path,
      proofs: head.proofs,
      certificate: () => clientCertificate(request, trusted),
    }),
  )
  return known instanceof Promise
    ? known.then((late) => identify(deps, exchange, late))
    : identify(deps, exchange, known)
}

function identify(deps: GatewayDeps, exchange: Exchange, known: Identity | SenderConstrainedToken | Refusal) {
  if (known instanceof Refusal) return known
  const route = exchange.route!
  const bound = 'prove' in known ? known : undefined
  const identity = 'prove' in known ? known.identity : known
  const { client, user } = identity
  const caller = { client, ...(user !== undefined && { user }), ip: exchange.ip }
  let forbidden = requireScope(identity, route.scope)
  if (forbidden === undefined && route.needsUser && user === undefined) {
    const message = 'The access token names no user, and this path is limited for each user.'
    forbidden = new Refusal('Forbidden', message)
  }
  forbidden ??= refuseCounted(exchange)
  if (forbidden === undefined) exchange.quotas = route.quotas(caller, exchange.params)
  if (bound !== undefined) return prove(deps, exchange, bound, caller, forbidden)
  exchange.caller = caller
  return forbidden
}

/** Returns a 400 for path parameters that the limits cannot count by, a 413 for too large a body. */
export function refuseCounted({ route, params, bodyLength }: Exchange): Outcome {
  const badParams = route!.refuseParams(params)
  if (badParams !== undefined) return badParams
  return (bodyLength as number) > route!.maxBody ? tooLarge(route!.maxBody) : undefined
}

/** Verifies the proof that a bound token came with. A call that is refused from memory costs no signature and leaves its proof unused. */
async function prove(
  { limiter }: GatewayDeps,
  exchange: Exchange,
  bound: SenderConstrainedToken,
  caller: Caller,
  forbidden: Outcome,
) {
  exchange.boundToken = bound
  exchange.cachedRefusal = limiter.recall(exchange.quotas)
  if (exchange.cachedRefusal === undefined) {
    const proof = await bound.prove()
    if (proof instanceof Refusal) return proof
    exchange.proof = exchange.route!.proofQuota(proof, caller, exchange.quotas)
  }
  exchange.caller = caller
  return forbidden
}
