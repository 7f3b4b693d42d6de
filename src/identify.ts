import type { IncomingMessage } from 'node:http'
import type { Identity, Proved } from './authenticate/bearer.ts'
import type { Caller } from './authenticate/caller.ts'
import { requireScope } from './authenticate/scope.ts'
import { senderOf } from './authenticate/sender.ts'
import { GatewayError } from './errors.ts'
import type { Exchange } from './exchange.ts'
import type { Parts, ServedRoute } from './parts.ts'
import type { Head } from './headers.ts'
import type { Target } from './target.ts'

/** A caller, and its proof of possession where it came with one: to be used before anything is done for it. */
export interface Identified {
  readonly caller: Caller
  readonly proof?: Proved | undefined
}

/** Who makes a request on this route, or why that is not known. A promise only where a token needs more than memory. */
export function identify(
  { authenticate }: Pick<Parts, 'authenticate'>,
  exchange: Exchange,
  request: IncomingMessage,
  { route, target, head }: { readonly route: ServedRoute; readonly target: Target; readonly head: Head },
): Identified | GatewayError | Promise<Identified | GatewayError> {
  const { ip } = exchange
  if (route.authenticate === 'none') return { caller: { ip } }
  const identity = authenticate(head.authorization, () =>
    senderOf(request, {
      path: target.path,
      proofs: head.proofs,
      trusted: exchange.trusted,
    }),
  )
  return identity instanceof Promise
    ? identity.then((known) => callerOf(known, route, ip))
    : callerOf(identity, route, ip)
}

function callerOf(
  known: Identity | Proved | GatewayError,
  route: ServedRoute,
  ip: string,
): Identified | GatewayError {
  if (known instanceof GatewayError) return known
  const proof = 'use' in known ? known : undefined
  const identity = 'use' in known ? known.identity : known
  const lacking = requireScope(identity, route.scope)
  if (lacking !== undefined) return lacking
  if (route.needsUser && identity.user === undefined) {
    return new GatewayError(
      'Forbidden',
      'The access token names no user, and this path is limited for each user.',
    )
  }
  const caller = { client: identity.client, ...(identity.user !== undefined && { user: identity.user }), ip }
  return { caller, proof }
}
