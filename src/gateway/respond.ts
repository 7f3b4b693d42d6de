import { ownCorsFields } from '../downstream/cors.ts'
import { replyForNginx } from '../downstream/forward-auth.ts'
import { prefersPage, refusalReply, type Reply, writeReply } from '../downstream/reply.ts'
import { Failure, Refusal } from '../errors.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'

/** Writes the reply to a refused request, in the format of the route or host, and counts failures of the address. */
export function refuse(deps: GatewayDeps, exchange: Exchange, refusal: Refusal): void {
  const { status, reply: fixed } = refusal
  // Failed authentications, and requests that no route matches.
  const isUnmatched = exchange.route === undefined && status < 500
  const isFailure = (status === 401 && fixed === undefined) || isUnmatched
  exchange.refusal = (isFailure ? deps.failures?.count(exchange.ip) : undefined) ?? refusal
  const { requestId, route = exchange.nearest } = exchange
  const isRead = route?.authenticate === 'authorization' && prefersPage(exchange.request.headers)
  const format = isRead ? 'page' : (route?.errorFormat ?? deps.errorFormatOf(exchange.head.hosts[0]))
  try {
    write(deps, exchange, refusalReply(exchange.refusal, format, requestId, deps.documentation))
  } catch (error) {
    exchange.refusal = toRefusal(error)
    exchange.response.destroy()
  }
}

/** Writes the gateway's own response, with the limit, if any, the request id and the fields of `cors`. */
export function write({ responseFields }: GatewayDeps, exchange: Exchange, own: Reply): void {
  const { asked, cors, rateLimitFields = '', refusal, request, requestId, response } = exchange
  const isForNginx = refusal !== undefined && asked?.proxy === 'nginx'
  const transportSecurity = asked === undefined ? responseFields.transportSecurity : ''
  const fields = `${transportSecurity}${rateLimitFields}\r\n${responseFields.requestId}: ${requestId}`
  const corsFields = cors && ownCorsFields(cors.fieldsFor(request.headers.origin), own.checked)
  exchange.bytes += writeReply(response, isForNginx ? replyForNginx(own) : own, fields + (corsFields ?? ''))
}

export function toRefusal(error: unknown): Refusal {
  if (error instanceof Failure) return error.refusal
  return new Refusal('InternalServer', 'The gateway failed on this request.', { cause: error })
}
