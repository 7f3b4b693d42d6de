import type { IncomingMessage } from 'node:http'
import type { Bound, Identity } from '../authenticate/token/bearer.ts'
import type { Caller } from '../limit/caller.ts'
import { requireScope } from '../authenticate/token/challenge.ts'
import { senderOf } from '../authenticate/proof/sender.ts'
import { clientCertificate } from '../downstream/client-certificate.ts'
import { Refusal } from '../errors.ts'
import type { Exchange } from './exchange.ts'
import type { Parts, ServedRoute } from './deps.ts'
import type { Head } from '../downstream/head.ts'
import type { Target } from '../downstream/target.ts'

/** A caller, and what binds its token to a key. */
export interface Identified {
  readonly caller: Caller
  readonly bound?: Bound | undefined
  /** Why it may not do this, though it is the caller that it says to be. */
  readonly forbidden?: Refusal | undefined
}

/** Who makes a request on this route, or why that is not known. A promise only where a token needs more than memory. */
export function identify(
  { authenticate }: Pick<Parts, 'authenticate'>,
  exchange: Exchange,
  request: IncomingMessage,
  { route, target, head }: { readonly route: ServedRoute; readonly target: Target; readonly head: Head },
): Identified | Refusal | Promise<Identified | Refusal> {
  if (route.authenticate === 'none') return { caller: { ip: exchange.ip } }
  const identity = authenticate(head.authorization, () =>
    senderOf(request, {
      path: target.path,
      proofs: head.proofs,
      trusted: exchange.trusted,
      certificate: () => clientCertificate(request, exchange.trusted),
    }),
  )
  return identity instanceof Promise
    ? identity.then((known) => callerOf(known, route, exchange))
    : callerOf(identity, route, exchange)
}

function callerOf(
  known: Identity | Bound | Refusal,
  route: ServedRoute,
  exchange: Exchange,
): Identified | Refusal {
  if (known instanceof Refusal) return known
  const bound = 'prove' in known ? known : undefined
  const identity = 'prove' in known ? known.identity : known
  const { ip } = exchange
  const caller = { client: identity.client, ...(identity.user !== undefined && { user: identity.user }), ip }
  return { caller, bound, forbidden: requireScope(identity, route.scope) ?? requireUser(identity, route) }
}

function requireUser({ user }: Identity, { needsUser }: ServedRoute): Refusal | undefined {
  if (!needsUser || user !== undefined) return undefined
  return new Refusal('Forbidden', 'The access token names no user, and this path is limited for each user.')
}
