import type { Exchange, GatewayRoute } from '../gateway/exchange.ts'
import { type Decision, retryAfterSecs } from '../limit/decision.ts'
import { boundOf } from '../limit/store.ts'
import { instant } from '../runtime/instant.ts'
import { epochOf, SYSTEM_CLOCK } from '../runtime/clock.ts'
import { settlementText } from './settlement-fields.ts'
import { SHOW_ALL, type ShownRequest } from './shown-request.ts'
import { parseTraceparent } from './traceparent.ts'
import { escaped } from './unsafe-characters.ts'

const END = ',"msg":"request"}\n'

/**
 * Returns the JSON line of a finished request. Concatenated: `JSON.stringify` takes 1.3 us more
 * (`npm run bench:micro -- log-line`). Fields that cannot contain special characters (id,
 * address, names of the configuration, numbers) are not escaped. Never contains a token, an
 * assertion, a request object or a query. `shown` decides about the path and addresses.
 */
export function accessLine(
  exchange: Exchange,
  level: 'info' | 'error' = 'info',
  shown: ShownRequest = SHOW_ALL,
): string {
  const { target, route, caller, claimed, decision, error, forwarded, decidedAt } = exchange
  let line = `{"level":"${level}"${timestamp()},"requestId":"${exchange.requestId}"`
  line += text('method', cut(exchange.method))
  if (target !== undefined) line += `,"host":"${cut(target.host)}"`
  const path = cut(shown.pathOf(exchange))
  // A canonical path has no characters to escape, shortened or not.
  if (target === undefined || path === undefined) line += text('path', path)
  else line += `,"path":"${path}"`
  if (route !== undefined) line += route.logText
  line += text('client', caller?.client ?? exchange.refusal?.client)
  if (claimed !== undefined) line += `${text('client', claimed)},"claimed":true`
  if (exchange.callers.length > 0) line += text('caller', callersText(exchange.callers, shown))
  line += addressField(shown.addressOf(exchange.ip))
  const traceId =
    exchange.sampledTraceId ?? parseTraceparent(exchange.request.headers['traceparent'])?.traceId
  if (traceId !== undefined) line += `,"traceId":"${traceId}"`
  if (decision !== undefined) line += decisionFields(decision)
  else if (isDenied(exchange)) line += ',"mode":"deny"'
  if (exchange.settlement !== undefined) line += settlementText(exchange.settlement)
  line += `,"source":"${exchange.source}","status":${statusOf(exchange)},"bytes":${exchange.bytes}`
  if (forwarded?.isSwitched === true) line += `,"received":${forwarded.received}`
  line += `,"durationMs":${(exchange.endedAt - exchange.startedAt).toFixed(3)}`
  if (decidedAt !== undefined)
    line += `,"decidedAt":${(decision?.decidedAt ?? epochMs(decidedAt)).toFixed(3)}`
  if (forwarded?.headAt !== undefined)
    line += `,"upstreamMs":${(forwarded.headAt - exchange.forwardedAt!).toFixed(3)}`
  if (exchange.incomplete !== undefined) line += `,"incomplete":"${exchange.incomplete}"`
  if (error !== undefined) line += `,"code":"${error.code}"${text('error', error.logged ?? error.message)}`
  if (exchange.status === 0) line += leftFields(exchange)
  else line += text('cause', causeOf(error?.cause ?? exchange.response.errored ?? undefined))
  return line + END
}

/** The parts of a route that the lines of its requests contain. */
type LoggedRoute = Pick<GatewayRoute, 'match' | 'name' | 'upstream' | 'labels'>

/** Returns the fields of a route for the lines of its requests, as JSON, with a comma before each. */
export function routeText({ match, name, upstream, labels }: LoggedRoute): string {
  const names = text('route', match) + text('routeName', name) + text('upstream', upstream)
  return labels === undefined ? names : `${names},"labels":${escaped(JSON.stringify(labels))}`
}

/** Texts for what a request waits for, before the name of its upstream. */
const WAITS = { slot: 'a free connection to ', connection: 'a new connection to ', response: '' }

/**
 * Returns what a caller waited for that left before a response, and how long: for the upstream,
 * since its request was forwarded.
 */
function leftFields({ startedAt, forwardedAt, endedAt, forwarded, route }: Exchange): string {
  const waitedFor = forwarded?.waitedFor
  let since = startedAt
  let wait = 'before its request was forwarded'
  if (waitedFor === 'body') wait = 'while sending its body'
  else if (waitedFor !== undefined) {
    since = forwardedAt!
    wait = `while waiting for ${WAITS[waitedFor]}${route!.upstream}`
  }
  return `,"waitedMs":${(endedAt - since).toFixed(3)}${text('cause', `the caller left ${wait}`)}`
}

/** Returns the status; 499 if the caller disconnected before a response began, as in nginx. */
export const statusOf = ({ status }: Exchange): number => (status === 0 ? 499 : status)

/** Adds the number of similar lines that were omitted. */
export const withOmitted = (line: string, omitted: number): string =>
  omitted === 0 ? line : `${line.slice(0, -END.length)},"omitted":${omitted}${END}`

/** Formats callers; undefined if nothing of them may be shown. */
export function callersText(callers: Exchange['callers'], shown: ShownRequest): string | undefined {
  const [first] = callers
  if (callers.length === 1) return cut(shown.shownAs(first!)) || undefined
  const texts = callers.map((caller) => cut(shown.shownAs(caller)))
  return texts.filter(Boolean).join(', ') || undefined
}

const addressField = (ip: string | null): string => (ip === null ? ',"ip":null' : `,"ip":"${ip}"`)

function decisionFields({ admitted, allowances, refusedBy, mode }: Decision): string {
  const reported = refusedBy ?? allowances[0]
  let fields = `,"decision":"${admitted ? 'admitted' : 'refused'}"`
  if (reported !== undefined)
    fields += `,"limit":"${reported.name}","of":${reported.limit},"remaining":${reported.remaining}`
  const part = reported && boundOf(reported)
  if (part !== undefined) fields += `,"part":${part}`
  if (refusedBy !== undefined)
    fields += `,"windowMs":${refusedBy.windowMs},"retryAfterSecs":${retryAfterSecs(refusedBy)}`
  fields += `,"mode":"${mode}"`
  const exceeded = allowances.filter((allowance) => allowance.shadow && !allowance.admitted)
  if (exceeded.length === 0) return fields
  return `${fields},"shadowOver":${JSON.stringify(exceeded.map(({ name }) => name))}`
}

/** Returns true if the request was refused because the store was unavailable, under `onOutage: deny`. */
export function isDenied({ limitAt, decidedAt, error, incomplete }: Exchange): boolean {
  const undecided = limitAt !== undefined && decidedAt === undefined
  // Requests that a drain aborts have the same code.
  return undecided && error?.code === 'ServiceUnavailable' && incomplete !== 'cut'
}

/** Returns the message of an error for the operator, or the stack if the error is a bug of the gateway. */
function causeOf(cause: unknown): string | undefined {
  if (cause === undefined) return undefined
  if (typeof cause === 'string') return cause.slice(0, 500)
  if (!(cause instanceof Error)) return 'unknown'
  const isBug = [TypeError, RangeError, ReferenceError].some((type) => cause instanceof type)
  return ((isBug && cause.stack) || cause.message).slice(0, 2000)
}

/** Maximum characters of a path, host or caller; `…` replaces the rest. */
const MAX_CHARS = 256

export const cut = <T extends string | undefined>(text: T): T | string =>
  text !== undefined && text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text

export const epochMs = epochOf(SYSTEM_CLOCK)

/** Characters that JSON does not escape. */
const UNESCAPED = /^[ !#-[\]-~]*$/

/** Returns a field with a string, or an empty string without a value. */
function text(name: string, value: string | undefined): string {
  if (value === undefined) return ''
  return UNESCAPED.test(value) ? `,"${name}":"${value}"` : `,"${name}":${escaped(JSON.stringify(value))}`
}

let lastMs = 0
let lastTimestamp = ''

/** Returns the time field of a line, with the comma before it; the lines of a millisecond share it. */
export function timestamp(): string {
  const ms = Date.now()
  if (ms !== lastMs) {
    lastTimestamp = `,"time":"${instant(ms)}"`
    lastMs = ms
  }
  return lastTimestamp
}
