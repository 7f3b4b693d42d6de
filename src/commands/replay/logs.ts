import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/text.ts'

/** A request of the access log. Instants are epoch milliseconds. */
export type LoggedCall = NonNullable<ReturnType<typeof readAccessLine>>

const STDIN = '-'
const CHUNK_BYTES = 128 * 1024
/** Maximum length of a line that spans chunks. The gateway's own lines have a few kilobytes at most. */
const MAX_LINE_CHARS = 64 * 1024
/** Maximum refusals that a line is believed to count: more than a gateway makes in that time. */
const MAX_OMITTED = 1_000_000
/** Maximum difference between Redis's clock, which decides, and the gateway's. Calls are buffered this long for sorting. */
const WINDOW_MS = 60_000
const MAX_BUFFERED = 400_000
/** Fraction by which both are exceeded before the buffered calls are sorted again. */
const SLACK = 0.1
const FIVE_DIGIT_YEARS = Date.UTC(10_000, 0)
/** Ends a path or a host that the log has truncated. */
const TRUNCATED = '…'
/** Error codes of calls that the gateway tried to forward. */
const FORWARDED = new Set<unknown>(['BadGateway', 'GatewayTimeout'])
/** Error codes of calls that the gateway could not decide, or decided and could not forward. */
const MAYBE_UNDECIDED = new Set<unknown>(['ServiceUnavailable', 'InternalServer'])

/** Returns the stored bytes of all logs; NaN if a size is not known, as of a pipe. */
export async function sizeOf(names: readonly string[]): Promise<number> {
  const sizes = names.map(async (name) => (name === STDIN ? undefined : await stat(name).catch(() => {})))
  return (await Promise.all(sizes)).reduce((sum, file) => sum + (file?.isFile() ? file.size : NaN), 0)
}

/** Reads a log, plain or gzip, in batches of lines; reports the stored bytes that were read, and each line that is too long. */
export async function* readLines(
  name: string,
  stdin: Readable,
  onRead: (bytes: number) => void,
  onOverlong: () => void,
): AsyncGenerator<readonly string[]> {
  const stored: Readable & { readonly bytesRead?: number } =
    name === STDIN ? stdin : createReadStream(name, { highWaterMark: CHUNK_BYTES })
  let reported = 0
  let rest = ''
  let skips = false
  try {
    const plain = (await isGzip(stored))
      ? pipeline(stored, createGunzip({ chunkSize: CHUNK_BYTES }), () => {})
      : stored
    for await (const chunk of plain.setEncoding('utf8') as AsyncIterable<string>) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop()!
      if (skips && lines.length > 0) {
        lines.shift()
        skips = false
      }
      yield lines
      const { bytesRead = 0 } = stored
      onRead(bytesRead - reported)
      reported = bytesRead
      if (!skips && rest.length > MAX_LINE_CHARS) {
        skips = true
        onOverlong()
      }
      if (skips) rest = ''
    }
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    const why = code.startsWith('Z_') ? `is damaged or cut gzip: ${message}` : reason(error)
    throw new Error(`${name === STDIN ? 'standard input' : name}: ${why}`, { cause: error })
  }
  if (rest !== '') yield [rest]
}

/** Reads the first bytes and puts them back: RFC 1952 section 2.3.1. */
async function isGzip(stream: Readable): Promise<boolean> {
  await once(stream, 'readable')
  const head = stream.read() as Buffer | null
  if (head === null) return false
  stream.unshift(head)
  return head[0] === 0x1f && head[1] === 0x8b
}

/** Parses a line of the access log, also after the prefix of a collector; undefined for any other line. */
export function readAccessLine(text: string) {
  let line: Readonly<Record<string, unknown>>
  try {
    line = JSON.parse(text.startsWith('{') ? text : text.slice(text.indexOf('{'))) as typeof line
  } catch {
    return undefined
  }
  const { msg, time, method, durationMs, decidedAt, decision, mode, code } = line
  if (msg !== 'request' || typeof time !== 'string' || typeof method !== 'string') return undefined
  if (typeof durationMs !== 'number') return undefined
  const loggedAt = Date.parse(time)
  const cameAt = loggedAt - durationMs
  if (!(cameAt >= 0 && cameAt <= loggedAt && loggedAt < FIVE_DIGIT_YEARS)) return undefined
  const stringOf = (name: string): string | undefined =>
    typeof line[name] === 'string' ? line[name] : undefined
  /** Returns undefined also for a truncated string. */
  const wholeOf = (name: string): string | undefined =>
    stringOf(name)?.endsWith(TRUNCATED) ? undefined : stringOf(name)
  // The claims of an authorisation request are not verified. Other proxies log an unknown client as an empty string.
  const client = line['claimed'] === true ? undefined : stringOf('client') || undefined
  // A line names the client of a verified token, also of one that is then refused. Without a client, only a call that was
  // forwarded or refused by `onOutage: deny` has certainly reached the limiter. 499: forwarded, and the caller left.
  const isAuthorized = client !== undefined && code !== 'Forbidden' && code !== 'Unauthorized'
  const isForwarded =
    decision === 'admitted' || line['source'] === 'upstream' || line['status'] === 499 || FORWARDED.has(code)
  const isRefused = decision === 'refused'
  const isAdmitted = isForwarded || (client !== undefined && !MAYBE_UNDECIDED.has(code))
  const unrefused = isAdmitted ? ('admitted' as const) : undefined
  const isDecidedAt =
    typeof decidedAt === 'number' && decidedAt >= cameAt - WINDOW_MS && decidedAt <= loggedAt + WINDOW_MS
  const omitted = Number.isSafeInteger(line['omitted']) ? (line['omitted'] as number) : 0
  return {
    /** The end of the request. */
    loggedAt,
    /** When the limiter decided; when the request came, if the line has no credible instant. */
    decidedAt: isDecidedAt ? decidedAt : cameAt,
    method,
    host: wholeOf('host'),
    path: wholeOf('path'),
    route: stringOf('route'),
    client,
    ip: stringOf('ip'),
    /** True if the call reached the limiter, even if its route has no limits. */
    arrived: decision !== undefined || mode === 'deny' || isAuthorized || isForwarded,
    /** Undefined if the gateway failed to decide or to forward. Calls without limits were admitted. */
    decision: isRefused ? ('refused' as const) : unrefused,
    /** True if it was admitted, and ended without a whole response below 400. */
    failed: !isRefused && (Number(line['status']) >= 400 || line['incomplete'] === 'cut'),
    limit: isRefused ? stringOf('limit') : undefined,
    /** Earlier refusals by the same limit, without a line of their own. */
    omitted: isRefused && omitted > 0 && omitted <= MAX_OMITTED ? omitted : 0,
  }
}

/** Merges logs by the times of their lines, by which each log is sorted. */
export async function merge(
  logs: readonly AsyncIterator<LoggedCall, void>[],
  take: (call: LoggedCall) => void,
): Promise<void> {
  const heads: { readonly log: (typeof logs)[number]; call: LoggedCall }[] = []
  for (const log of logs) {
    const { value } = await log.next()
    if (value !== undefined) heads.push({ log, call: value })
  }
  while (heads.length > 0) {
    const head = heads.reduce((first, next) => (next.call.loggedAt < first.call.loggedAt ? next : first))
    take(head.call)
    const { value } = await head.log.next()
    if (value === undefined) heads.splice(heads.indexOf(head), 1)
    else head.call = value
  }
}

/** Sorts calls by their decisions, and passes them on with that instant; a late call gets the instant of the call before. */
export function createOrder(
  pass: (call: LoggedCall, nowMs: number) => void,
  windowMs = WINDOW_MS,
  maxBuffered = MAX_BUFFERED,
) {
  const buffered: LoggedCall[] = []
  const late = { calls: 0, byMs: 0 }
  let newestAt = -Infinity
  let sortedAt = -Infinity
  let nowMs = -Infinity

  function passBefore(decidedBefore: number, maxKept: number): void {
    buffered.sort((a, b) => a.decidedAt - b.decidedAt)
    const kept = buffered.findIndex(({ decidedAt }) => decidedAt >= decidedBefore)
    const due = kept === -1 ? buffered.length : kept
    for (const call of buffered.splice(0, Math.max(due, buffered.length - maxKept))) {
      nowMs = Math.max(nowMs, call.decidedAt)
      pass(call, nowMs)
    }
    sortedAt = newestAt
  }

  return {
    push(call: LoggedCall): void {
      if (call.decidedAt < nowMs) {
        late.calls++
        late.byMs = Math.max(late.byMs, nowMs - call.decidedAt)
      }
      buffered.push(call)
      newestAt = Math.max(newestAt, call.loggedAt)
      const isDue = newestAt > sortedAt + windowMs * SLACK || buffered.length > maxBuffered * (1 + SLACK)
      if (isDue) passBefore(newestAt - windowMs, maxBuffered)
    },
    end: (): void => passBefore(Infinity, 0),
    /** Number of calls that came after later ones had been passed on, and their maximum delay. */
    late,
  }
}
