import type { Exchange } from '../gateway/exchange.ts'
import { SYSTEM_CLOCK } from '../limit/memory/store.ts'
import { timestamp } from './log.ts'
import { escaped } from './pretty.ts'
import { parseTraceparent } from './traceparent.ts'

type Route = NonNullable<Exchange['route']>
type Decision = NonNullable<Exchange['decision']>

const END = ',"msg":"request"}\n'

/**
 * Returns the JSON line of a finished request, written by hand as every member is known. Members that are plain by their
 * making (id, method, address, names of the configuration, numbers) are not searched for what needs an escape. Never shows a
 * token, an assertion, a request object or a query.
 */
export function accessLine(
  level: 'info' | 'error',
  exchange: Exchange,
  status: number,
  durationMs: number,
): string {
  const { request, target, route, caller, claimed, decision, error, forwarded, decidedAt } = exchange
  let line = `{"level":"${level}"${timestamp()},"requestId":"${exchange.requestId}","method":"${exchange.method}"`
  if (target === undefined)
    line += text('host', cut(exchange.host)) + text('path', cut(loggablePath(exchange.path)))
  // Canonical, so that only an escape can stand for what is not plain.
  else
    line += `,"host":"${cut(target.host)}","path":"${cut(target.path.includes('%') ? loggablePath(target.path) : target.path)}"`
  if (route !== undefined) line += routeMembers(route)
  line += text('client', caller?.client ?? exchange.refusal?.client)
  if (claimed !== undefined) line += `${text('client', claimed)},"claimed":true`
  line += `,"ip":"${exchange.ip}"`
  const { traceparent } = request.headers
  if (traceparent !== undefined) line += traceMember(traceparent)
  if (decision !== undefined) line += decisionMembers(decision)
  else if (isDenied(exchange)) line += ',"mode":"deny"'
  line += `,"source":"${exchange.source}","status":${status},"bytes":${exchange.bytes}`
  line += `,"durationMs":${rounded(durationMs)}`
  if (decidedAt !== undefined) line += `,"decidedAt":${rounded(decision?.decidedAt ?? epochMs(decidedAt))}`
  if (forwarded?.headAt !== undefined)
    line += `,"upstreamMs":${rounded(forwarded.headAt - exchange.forwardedAt!)}`
  if (exchange.incomplete !== undefined) line += `,"incomplete":"${exchange.incomplete}"`
  if (error !== undefined) line += `,"code":"${error.code}"${text('error', error.message)}`
  line += text('cause', forwarded?.timedOut ?? causeOf(error?.cause))
  return line + END
}

/** Adds to a line how many like it before have none. */
export function withOmitted(line: string, omitted: number): string {
  return omitted === 0 ? line : `${line.slice(0, -END.length)},"omitted":${omitted}${END}`
}

function traceMember(traceparent: unknown): string {
  const parsed = parseTraceparent(traceparent)
  return parsed === undefined ? '' : `,"traceId":"${parsed.traceId}"`
}

const membersOfRoutes = new WeakMap<Route, string>()

function routeMembers(route: Route): string {
  let members = membersOfRoutes.get(route)
  if (members === undefined) {
    members = text('route', route.match) + text('upstream', route.upstream)
    membersOfRoutes.set(route, members)
  }
  return members
}

function decisionMembers({ admitted, allowances, refusedBy, mode }: Decision): string {
  const reported = refusedBy ?? allowances[0]
  let members = `,"decision":"${admitted ? 'admitted' : 'refused'}"`
  if (reported !== undefined)
    members += `,"limit":"${reported.name}","of":${reported.limit},"remaining":${reported.remaining}`
  members += `,"mode":"${mode}"`
  if (!allowances.some(isShadowOver)) return members
  return `${members},"shadowOver":${JSON.stringify(allowances.filter(isShadowOver).map(({ name }) => name))}`
}

/** True for a shadow limit that would have refused the call. */
function isShadowOver({ shadow, admitted }: Decision['allowances'][number]): boolean {
  return shadow && !admitted
}

/** True if it was refused because the store was unavailable, under `onOutage: deny`. */
export function isDenied({ limitAt, decidedAt, error, incomplete }: Exchange): boolean {
  const undecided = limitAt !== undefined && decidedAt === undefined
  // A drain cuts off with the same code.
  return undecided && error?.code === 'ServiceUnavailable' && incomplete !== 'cut'
}

/** Returns what happened, for the operator: the message, with the stack if it is a fault of the gateway's own. */
function causeOf(cause: unknown): string | undefined {
  if (cause === undefined) return undefined
  if (typeof cause === 'string') return cause.slice(0, 500)
  if (!(cause instanceof Error)) return 'unknown'
  const own = cause instanceof TypeError || cause instanceof RangeError || cause instanceof ReferenceError
  return (own ? (cause.stack ?? cause.message) : cause.message).slice(0, 2000)
}

/** Longest path or host; `…` stands for the rest, and is in neither. */
const MAX_CHARS = 256

export function cut(text: string | undefined): string | undefined {
  return text !== undefined && text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text
}

/** Begins a query, a fragment or a parameter, which may hold a token, however often it is encoded. */
const SECRET_START = /[?#;]|%(?:25)*(?:3[bf]|23)/i

/** Returns a path up to what an upstream may take for its end, for which `…` stands. */
export function loggablePath(path: string | undefined): string | undefined {
  const end = path?.search(SECRET_START) ?? -1
  return end === -1 ? path : `${path!.slice(0, end)}…`
}

/** Returns the epoch time of an instant of `performance.now()`, for decisions without the store's clock. */
export function epochMs(at: number): number {
  const now = SYSTEM_CLOCK.monotonicMs()
  return at + SYSTEM_CLOCK.wallMs(now) - now
}

/** What JSON needs no escapes for. */
const PLAIN = /^[ !#-[\]-~]*$/

/** Returns one member, or nothing without a value. */
function text(name: string, value: string | undefined): string {
  if (value === undefined) return ''
  return PLAIN.test(value) ? `,"${name}":"${value}"` : `,"${name}":${escaped(JSON.stringify(value))}`
}

/** Milliseconds, not negative, with three decimals: written as two whole numbers, which takes a fraction of the time. */
function rounded(ms: number): string {
  const us = Math.round(ms * 1000)
  const whole = Math.floor(us / 1000)
  const rest = us - whole * 1000
  return `${whole}.${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}`
}
