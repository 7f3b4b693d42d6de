/** A request as the access log has it. Instants are epoch milliseconds. */
export type LoggedCall = NonNullable<ReturnType<typeof readAccessLine>>

type Line = Readonly<Record<string, unknown>>

/** Ends a path or a host that the log cut short; neither can hold it. */
const CUT = '…'
/** Error codes of the gateway for calls that it tried to forward. */
const FORWARDED = new Set<unknown>(['BadGateway', 'GatewayTimeout'])
/** The status of a call that was forwarded, and whose caller left before the response began. */
const CALLER_LEFT = 499
/** Error codes for calls that the gateway could not decide, but also for ones that it decided and could not forward. */
const MAYBE_UNDECIDED = new Set<unknown>(['ServiceUnavailable', 'InternalServer'])

/** More refusals of one limit than a gateway answers while it omits their lines. */
const MOST_OMITTED = 1_000_000
/** Most that Redis's clock, which counts, and the gateway's may differ; calls wait as long to be put in order. */
const CLOCKS_APART_MS = 60_000
/** The gateway writes years of four digits. */
const FIVE_DIGIT_YEARS = Date.UTC(10_000, 0)

/** Parses a line of the access log after whatever a collector wrote before it; undefined for any other line. */
export function readAccessLine(text: string) {
  const start = text.indexOf('{')
  if (start === -1) return undefined
  let line: Line
  try {
    line = JSON.parse(start === 0 ? text : text.slice(start)) as Line
  } catch {
    return undefined
  }
  const { msg, time, method, durationMs, decidedAt, decision, mode, code, omitted = 0 } = line
  // What a pushed authorisation request claims is not known to be true. Other proxies log an unknown client as an empty text.
  const client = line['claimed'] === true ? undefined : textOf(line, 'client') || undefined
  if (msg !== 'request' || typeof time !== 'string' || typeof method !== 'string') return undefined
  if (typeof durationMs !== 'number') return undefined
  const loggedAt = Date.parse(time)
  const cameAt = loggedAt - durationMs
  if (!(cameAt >= 0 && cameAt <= loggedAt && loggedAt < FIVE_DIGIT_YEARS)) return undefined
  // A line names the client of a verified token, also where that is then refused. Without a client, only a call that was
  // forwarded or refused by `onOutage: deny` is known to have reached the limiter.
  const authorized = client !== undefined && code !== 'Forbidden' && code !== 'Unauthorized'
  const forwarded =
    decision === 'admitted' ||
    line['source'] === 'upstream' ||
    line['status'] === CALLER_LEFT ||
    FORWARDED.has(code)
  const admitted = forwarded || (client !== undefined && !MAYBE_UNDECIDED.has(code))
  return {
    /** When the line was written, which is when the request ended. */
    loggedAt,
    /** When the limiter decided; when the request came, where it was not asked or the line has no credible instant. */
    decidedAt:
      typeof decidedAt === 'number' &&
      decidedAt >= cameAt - CLOCKS_APART_MS &&
      decidedAt <= loggedAt + CLOCKS_APART_MS
        ? decidedAt
        : cameAt,
    method,
    /** In lower case; undefined where the log has none, or cut it short. */
    host: uncutOf(line, 'host'),
    /** Canonical; undefined where the log cut it short. */
    path: uncutOf(line, 'path'),
    /** The pattern of the route that took it. */
    route: textOf(line, 'route'),
    client,
    ip: textOf(line, 'ip'),
    /** True if it got as far as the limiter, whether that was then asked or not. */
    arrived: decision !== undefined || mode === 'deny' || authorized || forwarded,
    /** Undefined where the gateway failed to decide or to forward. Calls without limits were admitted. */
    decision: decision === 'refused' ? ('refused' as const) : admitted ? ('admitted' as const) : undefined,
    /** The limit that refused it. */
    limit: decision === 'refused' ? textOf(line, 'limit') : undefined,
    /** Refusals like it, by the same limit a little earlier, that have no line of their own. */
    omitted: decision === 'refused' && isCount(omitted) ? omitted : 0,
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= MOST_OMITTED
}

function textOf(line: Line, name: string): string | undefined {
  const value = line[name]
  return typeof value === 'string' ? value : undefined
}

function uncutOf(line: Line, name: string): string | undefined {
  const text = textOf(line, name)
  return text?.endsWith(CUT) === true ? undefined : text
}
