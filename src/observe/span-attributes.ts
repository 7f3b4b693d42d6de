import type { Exchange } from '../gateway/exchange.ts'
import { callersText, cut, isDenied } from './log-lines.ts'
import { settlementAttributes } from './settlement-fields.ts'
import { routePath, type ShownRequest } from './shown-request.ts'

/** Values of attributes; undefined ones are left out. */
type Attributes = Record<string, string | number | undefined>

/** Returns the attributes of a span: the data of the access log, under OpenTelemetry's names where they exist. */
export function attributesOf(exchange: Exchange, shown: ShownRequest): Attributes {
  const { route, status, decision, forwarded } = exchange
  const reported = decision?.refusedBy ?? decision?.allowances[0]
  const isAsked = decision?.mode === 'store' && !decision.cached
  return {
    'http.request.method': exchange.method,
    'http.route': routePath(exchange),
    'http.response.status_code': status === 0 ? undefined : status,
    'url.path': cut(shown.pathOf(exchange)),
    'url.scheme': 'encrypted' in exchange.request.socket ? 'https' : 'http',
    'server.address': cut(exchange.target?.host),
    'client.address': shown.addressOf(exchange.ip) ?? undefined,
    'error.type': status >= 500 ? String(status) : undefined,
    'sluice.request_id': exchange.requestId,
    'sluice.source': exchange.source,
    'sluice.upstream': route?.upstream,
    'sluice.client': exchange.caller?.client,
    'sluice.decision': decision && (decision.admitted ? 'admitted' : 'refused'),
    'sluice.limit': reported?.name,
    'sluice.remaining': reported?.remaining,
    'sluice.store.mode': isDenied(exchange) ? 'deny' : decision?.mode,
    'sluice.store.duration_ms': isAsked ? exchange.decidedAt! - exchange.limitAt! : undefined,
    'sluice.upstream.duration_ms': forwarded?.headAt && forwarded.headAt - exchange.forwardedAt!,
    ...refusalAttributes(exchange, shown),
    ...settlementAttributes(exchange),
    ...routeAttributes(exchange),
  }
}

/** Returns why the gateway refused: the code, and of a limit its number, the wait and the callers that it counts. */
function refusalAttributes({ refusal, decision, callers }: Exchange, shown: ShownRequest): Attributes {
  if (refusal === undefined) return {}
  return {
    'sluice.code': refusal.code,
    'sluice.of': decision?.refusedBy?.limit,
    'sluice.retry_after_secs': refusal.retryAfterSecs,
    'sluice.caller': callersText(callers, shown),
  }
}

/** Returns the name and the labels of the route, as the metrics show them. */
function routeAttributes({ route }: Exchange): Attributes {
  const attributes: Attributes = { 'sluice.route': route?.name }
  for (const [label, value] of Object.entries(route?.labels ?? {}))
    attributes[`sluice.label.${label}`] = value
  return attributes
}
