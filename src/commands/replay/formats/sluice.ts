import { MAX_POINTS } from '../../../actual/points.ts'
import { isObject, type JsonObject, parseObject } from '../../../runtime/json.ts'
import { type Line, unreadable } from './call.ts'
import { readInstant } from './instant.ts'

/** Maximum refusals that a line is believed to count: more than a gateway makes in that time. */
const MAX_OMITTED = 1_000_000
/** Maximum difference between Redis's clock, which decides, and the gateway's. */
const CLOCKS_MS = 60_000
/** Error codes of calls that the gateway tried to forward. */
const FORWARDED = new Set<unknown>(['BadGateway', 'GatewayTimeout'])
/** Error codes of calls that the gateway could not decide, or decided and could not forward. */
const MAYBE_UNDECIDED = new Set<unknown>(['ServiceUnavailable', 'InternalServer'])
/** The beginning of each of Sluice's lines, and the end of those of requests. */
const OWN_LINE = /\{"level":"|"msg":"request"/

/**
 * Parses a line of Sluice's access log, also after the prefix of a collector, or a line of another
 * proxy with the same fields. Other lines of its log, and of programs that share it, are `other`.
 */
export function readAccessLine(text: string): Line {
  const line = parseObject(text.slice(text.indexOf('{')))
  if (line === undefined) return OWN_LINE.test(text) ? unreadable('is a cut or damaged line') : 'other'
  return line['msg'] === 'request' ? callOfLine(line) : 'other'
}

function callOfLine(line: JsonObject): Line {
  const { time, method, durationMs, decidedAt, decision, code, omitted, source, status } = line
  if (typeof method !== 'string') return unreadable('has no "method"')
  if (typeof durationMs !== 'number') return unreadable('has no "durationMs" that is a number')
  const loggedAt = readInstant(time)
  if (Number.isNaN(loggedAt))
    return unreadable('has no "time" that is ISO 8601, epoch seconds or epoch milliseconds')
  const cameAt = loggedAt - durationMs
  if (!(cameAt >= 0 && cameAt <= loggedAt)) return unreadable('has a "durationMs" that cannot be true')

  const stringOf = (name: string): string | undefined =>
    typeof line[name] === 'string' ? line[name] : undefined
  /** Returns undefined also for a path or a host that the log has truncated. */
  const wholeOf = (name: string): string | undefined =>
    stringOf(name)?.endsWith('…') ? undefined : stringOf(name)
  const route = stringOf('route')
  const path = wholeOf('path')
  // With `log.path: route`, the path is that of the route.
  const isPattern = path !== undefined && /\/[:*]/.test(path) && route?.endsWith(path) === true
  // With `log.ip: truncated`, the address is a network.
  const ip = stringOf('ip')
  // The claims of an authorisation request are not verified. Other proxies log an unknown client as an empty string.
  const client = line['claimed'] === true ? undefined : stringOf('client') || undefined
  // A line names the client of a verified token, also of one that is then refused. Without a
  // client, only a call that was forwarded or refused by `onOutage: deny` has certainly reached the
  // limiter. 499: forwarded, and the caller left.
  const isForwarded =
    decision === 'admitted' || source === 'upstream' || status === 499 || FORWARDED.has(code)
  const isAuthorized = client !== undefined && code !== 'Forbidden' && code !== 'Unauthorized'
  if (decision === undefined && line['mode'] !== 'deny' && !isAuthorized && !isForwarded)
    return 'refusedBefore'

  const isRefused = decision === 'refused'
  const isAdmitted = isForwarded || (client !== undefined && !MAYBE_UNDECIDED.has(code))
  const unrefused = isAdmitted ? ('admitted' as const) : ('undecided' as const)
  const givenAt = typeof decidedAt === 'number' ? decidedAt : Number.NaN
  const isCredible = givenAt >= cameAt - CLOCKS_MS && givenAt <= loggedAt + CLOCKS_MS
  const earlier = isRefused ? Number(omitted) : 0
  return {
    loggedAt,
    decidedAt: isCredible ? givenAt : cameAt,
    tookMs: isRefused ? 0 : durationMs,
    method,
    host: wholeOf('host'),
    path: isPattern ? undefined : path,
    route,
    client,
    ip: ip?.includes('/') === true ? undefined : ip,
    decision: isRefused ? ('refused' as const) : unrefused,
    failed: !isRefused && (Number(status) >= 400 || line['incomplete'] === 'cut'),
    limit: isRefused ? stringOf('limit') : undefined,
    settled: readPoints(line['settled']),
    omitted: earlier > 0 && earlier <= MAX_OMITTED ? earlier : 0,
  }
}

/** Reads points, or points by limit; returns undefined for anything else. */
function readPoints(value: unknown): number | ReadonlyMap<string, number> | undefined {
  if (isPoints(value)) return value
  if (!isObject(value)) return undefined
  return new Map(Object.entries(value).filter((entry): entry is [string, number] => isPoints(entry[1])))
}

const isPoints = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_POINTS
