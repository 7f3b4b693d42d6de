/** A request as the access log tells it. Instants are epoch milliseconds. */
export interface LoggedCall {
  /** When the line was written, which is when the request was over. */
  readonly loggedAt: number
  /** When the limiter decided; where it was not asked, or the line does not tell or cannot be right, when the request came. */
  readonly decidedAt: number
  readonly method: string
  /** In lower case; undefined in an old log, or where the log cut it short. */
  readonly host: string | undefined
  /** Canonical; undefined where the log cut it short. */
  readonly path: string | undefined
  /** The pattern of the route that took it. */
  readonly route: string | undefined
  readonly client: string | undefined
  readonly ip: string | undefined
  /**
   * Did it get as far as the limiter, whether the limiter was then asked or not? A client is told once it has proved who it is,
   * also where its token then lacks a scope.
   * Where nobody must, only a call that was forwarded, or that `onOutage: deny` refused, tells that it did.
   */
  readonly arrived: boolean
  /** Undefined where the gateway failed to decide or to forward, as when the store was out of reach. What no limit was asked about was admitted. */
  readonly decision: 'admitted' | 'refused' | undefined
  /** The limit that refused it. */
  readonly limit: string | undefined
}

type Line = Readonly<Record<string, unknown>>

/** Stands where the log cut a path or a host short; neither can hold it. */
const CUT = '…'
/** What the gateway answers by itself to a call that it has tried to forward. */
const FORWARDED = new Set<unknown>(['BadGateway', 'GatewayTimeout'])
/** The status of a call that was forwarded, and whose caller left before an answer began. */
const CALLER_LEFT = 499
/** With what the gateway answers a call that it could not decide, but also one that it decided and could not forward. */
const MAYBE_UNDECIDED = new Set<unknown>(['ServiceUnavailable', 'InternalServer'])

/** How far the clock that counts, which is Redis's, and the gateway's are taken to be apart: as long as calls wait to be put in order. */
const MOST_APART_MS = 60_000
/** The gateway writes years of four digits. */
const FIVE_DIGIT_YEARS = Date.UTC(10_000, 0)

/** Reads a line of the access log, whatever a collector wrote before it; undefined where it is none. */
export function readAccessLine(text: string): LoggedCall | undefined {
  const start = text.indexOf('{')
  if (start === -1) return undefined
  let line: Line
  try {
    line = JSON.parse(start === 0 ? text : text.slice(start)) as Line
  } catch {
    return undefined
  }
  const { msg, time, method, durationMs, decidedAt, decision, mode } = line
  if (msg !== 'request' || typeof time !== 'string' || typeof method !== 'string') return undefined
  if (typeof durationMs !== 'number') return undefined
  const loggedAt = Date.parse(time)
  const cameAt = loggedAt - durationMs
  if (!(cameAt >= 0 && cameAt <= loggedAt && loggedAt < FIVE_DIGIT_YEARS)) return undefined
  return {
    loggedAt,
    decidedAt: isNear(decidedAt, cameAt, loggedAt) ? decidedAt : cameAt,
    method,
    host: wholeOf(line, 'host'),
    path: wholeOf(line, 'path'),
    route: textOf(line, 'route'),
    client: textOf(line, 'client'),
    ip: textOf(line, 'ip'),
    arrived: decision !== undefined || mode === 'deny' || wasLetIn(line) || wasForwarded(line),
    decision: decision === 'refused' ? decision : wasAdmitted(line) ? 'admitted' : undefined,
    limit: decision === 'refused' ? textOf(line, 'limit') : undefined,
  }
}

/** Had the caller proved who it is, and might it do what it asked for? */
function wasLetIn({ client, code }: Line): boolean {
  return client !== undefined && code !== 'Forbidden'
}

/** Of the calls that nobody must prove, only how they ended tells that they got that far. */
function wasForwarded({ decision, source, status, code }: Line): boolean {
  return decision === 'admitted' || source === 'upstream' || status === CALLER_LEFT || FORWARDED.has(code)
}

function wasAdmitted(line: Line): boolean {
  return wasForwarded(line) || (line['client'] !== undefined && !MAYBE_UNDECIDED.has(line['code']))
}

/** Was it while the request lasted, as far as two clocks may differ? */
function isNear(at: unknown, cameAt: number, loggedAt: number): at is number {
  return typeof at === 'number' && at >= cameAt - MOST_APART_MS && at <= loggedAt + MOST_APART_MS
}

function textOf(line: Line, name: string): string | undefined {
  const value = line[name]
  return typeof value === 'string' ? value : undefined
}

function wholeOf(line: Line, name: string): string | undefined {
  const text = textOf(line, name)
  return text?.endsWith(CUT) === true ? undefined : text
}
