import { reportsPlainHttp } from '../downstream/public-url.ts'
import { Refusal } from '../errors.ts'
import { type Body, hasClientCredentials } from '../par/form.ts'
import type { GatewayDeps, Outcome, Routed } from './exchange.ts'

const IN_THE_CLEAR = new Refusal(
  'Forbidden',
  'Send credentials over HTTPS only, and replace these: they were sent in the clear.',
)

/**
 * Refuses a request with credentials in its head that came over plain HTTP, as a trusted proxy
 * reports, on any route: alike for valid and invalid ones, as a listener on the network has them now
 * (draft-ietf-httpapi-privacy). A PAR request has credentials in its form.
 */
export function refusePlainHead(deps: GatewayDeps, exchange: Routed): Outcome {
  const { head, request, route } = exchange
  const hasCredentials =
    head.authorization.length > 0 ||
    head.proofs.length > 0 ||
    (deps.keys !== undefined && request.headers[deps.keys.field] !== undefined) ||
    route.authenticate === 'par'
  return hasCredentials && isPlain(deps, exchange) ? IN_THE_CLEAR : undefined
}

/** Refuses a request to an identity endpoint in the same way, for credentials in its query or its form. */
export function refusePlainParameters(deps: GatewayDeps, exchange: Routed, form: Body | undefined): Outcome {
  if (!isPlain(deps, exchange)) return undefined
  const found =
    hasClientCredentials(exchange.target.query) || hasClientCredentials(form?.body.toString() ?? '')
  return found ? IN_THE_CLEAR : undefined
}

/** Returns true if a trusted proxy reports plain HTTP. `listen.publicUrl` replaces what it reports. */
const isPlain = ({ publicUrl }: GatewayDeps, { request, trusted }: Routed): boolean =>
  trusted && publicUrl === undefined && reportsPlainHttp(request.headers)
