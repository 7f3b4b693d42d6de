import type { Exchange } from '../gateway/exchange.ts'
import { SYSTEM_CLOCK } from '../limit/memory/store.ts'
import { escaped } from './escape.ts'
import { timestamp } from './log.ts'

/** Longest that a path or a host is told; `…` stands for the rest, which is in neither. */
const MOST_CHARS = 256
const MAX_METHOD = 16
/** What JSON needs no escapes for. */
const PLAIN = /^[ !#-[\]-~]*$/

/**
 * The line of JSON that tells of a finished request, written out by hand: there is one for each, and every member is known.
 * Never a token, an assertion, a request object or a query.
 */
export function accessLine(
  level: 'info' | 'error',
  exchange: Exchange,
  status: number,
  durationMs: number,
): string {
  const { route, caller, decision, error, forwarded, decidedAt } = exchange
  const headAt = forwarded?.headAt
  let line = `{"level":"${level}"${timestamp()}`
  line += text('requestId', exchange.requestId)
  line += text('method', exchange.method.slice(0, MAX_METHOD))
  line += text('host', cut(exchange.host)) + text('path', cut(plainPath(exchange.path)))
  line += text('route', route?.match) + text('upstream', route?.upstream)
  line += text('client', caller?.client) + text('ip', exchange.ip)
  if (decision !== undefined) line += decided(decision)
  else if (isDenied(exchange)) line += ',"mode":"deny"'
  line += `,"source":"${exchange.source}","status":${status},"durationMs":${rounded(durationMs)}`
  if (decidedAt !== undefined) line += `,"decidedAt":${rounded(decision?.decidedAt ?? epochMs(decidedAt))}`
  if (headAt !== undefined) line += `,"upstreamMs":${rounded(headAt - exchange.askedAt!)}`
  line += text('incomplete', exchange.incomplete)
  line += text('code', error?.code) + text('error', error?.message)
  line += text('cause', forwarded?.givenUp ?? causeOf(error?.cause))
  return `${line},"msg":"request"}\n`
}

function decided(decision: NonNullable<Exchange['decision']>): string {
  const reported = decision.refusedBy ?? decision.allowances[0]
  let members = decision.admitted ? ',"decision":"admitted"' : ',"decision":"refused"'
  if (reported !== undefined) members += `${text('limit', reported.name)},"remaining":${reported.remaining}`
  return `${members},"mode":"${decision.mode}"${shadowOver(decision)}`
}

/** Was it refused because the store was out of reach, under `onOutage: deny`? */
function isDenied({ limitAt, decidedAt, error, incomplete }: Exchange): boolean {
  const undecided = limitAt !== undefined && decidedAt === undefined
  // A drain cuts off with the same code.
  return undecided && error?.code === 'ServiceUnavailable' && incomplete !== 'cut'
}

/** The shadow limits that would have refused the call. */
function shadowOver({ allowances }: NonNullable<Exchange['decision']>): string {
  if (allowances.every(({ shadow, admitted }) => !shadow || admitted)) return ''
  const over = allowances.filter(({ shadow, admitted }) => shadow && !admitted)
  return `,"shadowOver":${JSON.stringify(over.map(({ name }) => name))}`
}

/** What happened, for the operator: the chain of messages, with the stack where it is a fault of the gateway's own. */
function causeOf(cause: unknown): string | undefined {
  if (cause === undefined) return undefined
  if (typeof cause === 'string') return cause.slice(0, 500)
  if (!(cause instanceof Error)) return 'unknown'
  const own = cause instanceof TypeError || cause instanceof RangeError || cause instanceof ReferenceError
  return (own ? (cause.stack ?? cause.message) : cause.message).slice(0, 2000)
}

function cut(text: string | undefined): string | undefined {
  return text !== undefined && text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text
}

/** With what a query, a fragment or a parameter begins, which may hold a token, however often it is encoded. */
const NO_PATH = /[?#;]|%(?:25)*(?:3[bf]|23)/i

/** A path up to what an upstream may take for the end of it, for which `…` stands. */
function plainPath(path: string | undefined): string | undefined {
  const end = path?.search(NO_PATH) ?? -1
  return end === -1 ? path : `${path!.slice(0, end)}…`
}

/** An instant of the clock that durations are taken on, for decisions of which no store knows it. */
function epochMs(at: number): number {
  const now = SYSTEM_CLOCK.monotonicMs()
  return at + SYSTEM_CLOCK.wallMs(now) - now
}

/** One member, or nothing where there is no value. */
function text(name: string, value: string | undefined): string {
  if (value === undefined) return ''
  return PLAIN.test(value) ? `,"${name}":"${value}"` : `,"${name}":${escaped(JSON.stringify(value))}`
}

const rounded = (ms: number): number => Math.round(ms * 1000) / 1000
