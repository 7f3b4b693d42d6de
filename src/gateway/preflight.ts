import { corsMethods, corsOf, preflightReply } from '../downstream/cors.ts'
import type { GatewayDeps, Parsed } from './exchange.ts'

/**
 * Answers the preflight by which a browser asks whether a page may send a request, if the route of
 * that request has `cors`: without a token, and without counting it. Returns false for any other
 * request, also for an OPTIONS request with a body, which browsers do not send.
 */
export function answerPreflight(deps: GatewayDeps, exchange: Parsed): boolean {
  if (exchange.method !== 'OPTIONS' || exchange.asked !== undefined) return false
  const { bodyLength, misframed, target } = exchange
  const { headers } = exchange.request
  const { origin, 'access-control-request-method': announced } = headers
  const hasBody = misframed !== undefined || bodyLength !== 0
  if (origin === undefined || announced === undefined || hasBody) return false
  const matchOf = (one: string) => deps.match(one, target.host, target.segments)
  const found = matchOf(announced)
  const cors = corsOf(found, deps.cors)
  if (cors === undefined) return false
  if (found !== undefined && 'route' in found) exchange.route = found.route
  exchange.cors = cors
  const isAllowed = cors.fieldsFor(origin).allow.length > 0
  exchange.reply = preflightReply(cors, isAllowed, corsMethods(cors, matchOf), headers)
  return true
}
