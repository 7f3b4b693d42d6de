import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { PassThrough, pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/text.ts'
import { parseObject } from '../../runtime/json.ts'

/** A call that reached the limiter. Instants are epoch milliseconds. */
export type LoggedCall = Exclude<ReturnType<typeof readAccessLine>, string>

const CHUNK_BYTES = 128 * 1024
/** Maximum length of a line. The gateway's own lines have a few kilobytes at most. */
export const MAX_LINE_CHARS = 64 * 1024
/** Maximum refusals that a line is believed to count: more than a gateway makes in that time. */
const MAX_OMITTED = 1_000_000
/** Maximum difference between Redis's clock, which decides, and the gateway's. */
const CLOCKS_MS = 60_000
/** Minimum number of calls that are buffered for sorting; the maximum is twice that, 160 MB. */
const SORTED_CALLS = 100_000
/** Error codes of calls that the gateway tried to forward. */
const FORWARDED = new Set<unknown>(['BadGateway', 'GatewayTimeout'])
/** Error codes of calls that the gateway could not decide, or decided and could not forward. */
const MAYBE_UNDECIDED = new Set<unknown>(['ServiceUnavailable', 'InternalServer'])

/**
 * Reads a log, plain or gzip, in batches of lines, and reports the stored bytes. Keeps only the
 * beginning of a line that is too long.
 */
export async function* readLines(name: string, stdin: Readable, onRead: (bytes: number) => void) {
  let rest = ''
  try {
    const stored = name === '-' ? stdin : createReadStream(name, { highWaterMark: CHUNK_BYTES })
    const decoder = await createDecoder(stored)
    stored.on('data', ({ length }: Buffer) => onRead(length))
    const chunks: AsyncIterable<string> = pipeline(stored, decoder.setEncoding('utf8'), () => {})
    for await (const chunk of chunks) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop()!.slice(0, MAX_LINE_CHARS + 1)
      yield lines
    }
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    const why = code.startsWith('Z_') ? `is damaged or cut gzip: ${message}` : reason(error)
    throw new Error(`${name === '-' ? 'standard input' : name}: ${why}`, { cause: error })
  }
  yield [rest]
}

/** Creates the decoder for the first bytes, which it reads and puts back: RFC 1952 section 2.3.1. */
async function createDecoder(stream: Readable) {
  await once(stream, 'readable')
  const head = stream.read() as Buffer | null
  if (head !== null) stream.unshift(head)
  const isGzip = head?.[0] === 0x1f && head[1] === 0x8b
  return isGzip ? createGunzip({ chunkSize: CHUNK_BYTES }) : new PassThrough()
}

/**
 * Parses a line of the access log, also after the prefix of a collector. Returns why a line is not
 * of a call that reached the limiter.
 */
export function readAccessLine(text: string) {
  if (text.length > MAX_LINE_CHARS) return 'other'
  const line = parseObject(text.slice(text.indexOf('{')))
  if (line === undefined) return 'other'
  const { msg, time, method, durationMs, decidedAt, decision, code, omitted, source, status } = line
  if (msg !== 'request' || typeof time !== 'string' || typeof method !== 'string') return 'other'
  if (typeof durationMs !== 'number') return 'other'
  const loggedAt = Date.parse(time)
  const cameAt = loggedAt - durationMs
  if (!(cameAt >= 0 && cameAt <= loggedAt)) return 'other'

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
    /** The end of the request. */
    loggedAt,
    /** When the limiter decided; when the request came, if the line has no credible instant. */
    decidedAt: isCredible ? givenAt : cameAt,
    /** Milliseconds in progress; 0 for a refused call, whose duration is unknown. */
    tookMs: isRefused ? 0 : durationMs,
    method,
    host: wholeOf('host'),
    path: isPattern ? undefined : path,
    route,
    client,
    ip: ip?.includes('/') === true ? undefined : ip,
    /** Undecided if the gateway failed to decide or to forward. Calls without limits were admitted. */
    decision: isRefused ? ('refused' as const) : unrefused,
    /** True if it was admitted, and ended without a whole response below 400. */
    failed: !isRefused && (Number(status) >= 400 || line['incomplete'] === 'cut'),
    limit: isRefused ? stringOf('limit') : undefined,
    /** Earlier refusals by the same limit, without a line of their own. */
    omitted: earlier > 0 && earlier <= MAX_OMITTED ? earlier : 0,
  }
}

/**
 * Passes on the calls of all logs, each sorted by the ends of its requests, in the order of their
 * decisions, with their instants. A call that comes after a later one gets the instant of that one.
 * Returns the number of such late calls and their maximum delay.
 */
export async function passInOrder(
  logs: readonly AsyncIterator<readonly LoggedCall[], void>[],
  pass: (call: LoggedCall, nowMs: number) => void,
  sortedCalls = SORTED_CALLS,
) {
  const open = logs.map((log) => ({ log, readTo: -Infinity }))
  const late = { calls: 0, byMs: 0 }
  const buffered: LoggedCall[] = []
  let nowMs = -Infinity

  function passAllBut(kept: number): void {
    buffered.sort((a, b) => a.decidedAt - b.decidedAt)
    for (const call of buffered.splice(0, buffered.length - kept)) {
      if (call.decidedAt < nowMs) {
        late.calls++
        late.byMs = Math.max(late.byMs, nowMs - call.decidedAt)
      }
      nowMs = Math.max(nowMs, call.decidedAt)
      pass(call, nowMs)
    }
  }

  while (open.length > 0) {
    const last = open.reduce((first, next) => (next.readTo < first.readTo ? next : first))
    const { value: calls } = await last.log.next()
    if (calls === undefined) open.splice(open.indexOf(last), 1)
    buffered.push(...(calls ?? []))
    last.readTo = calls?.at(-1)?.loggedAt ?? last.readTo
    if (buffered.length >= 2 * sortedCalls) passAllBut(sortedCalls)
  }
  passAllBut(0)
  return late
}
