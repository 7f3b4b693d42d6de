import type { Bound } from '../authenticate/proof/confirmation.ts'
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
export function authenticate(deps: GatewayDeps, x: Exchange): Outcome | Promise<Outcome> {
  const { head, target, trusted, request } = x
  const route = x.route!
  if (route.authenticate === 'par') return checkPushed(deps, x)
  if (route.authenticate === 'authorization') return checkAuthorization(deps, x)
  if (route.authenticate === 'none') {
    x.caller = { ip: x.ip }
    x.quotas = route.quotas(x.caller, x.params)
    return undefined
  }
  const known = deps.authenticate(head.authorization, () =>
    senderOf(request, trusted, {
      path: target!.path,
      proofs: head.proofs,
      certificate: () => clientCertificate(request, trusted),
    }),
  )
  return known instanceof Promise ? known.then((late) => identify(deps, x, late)) : identify(deps, x, known)
}

function identify(deps: GatewayDeps, x: Exchange, known: Identity | Bound | Refusal) {
  if (known instanceof Refusal) return known
  const route = x.route!
  const bound = 'prove' in known ? known : undefined
  const identity = 'prove' in known ? known.identity : known
  const { client, user } = identity
  const caller = { client, ...(user !== undefined && { user }), ip: x.ip }
  let forbidden = requireScope(identity, route.scope)
  if (forbidden === undefined && route.needsUser && user === undefined) {
    const message = 'The access token names no user, and this path is limited for each user.'
    forbidden = new Refusal('Forbidden', message)
  }
  forbidden ??= refuseCounted(x)
  if (forbidden === undefined) x.quotas = route.quotas(caller, x.params)
  if (bound !== undefined) return prove(deps, x, bound, caller, forbidden)
  x.caller = caller
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
  x: Exchange,
  bound: Bound,
  caller: Caller,
  forbidden: Outcome,
) {
  x.bound = bound
  x.cachedRefusal = limiter.recall(x.quotas)
  if (x.cachedRefusal === undefined) {
    const proof = await bound.prove()
    if (proof instanceof Refusal) return proof
    x.proof = x.route!.proofQuota(proof, caller, x.quotas)
  }
  x.caller = caller
  return forbidden
}
