import pino, { type LevelWithSilent, type Logger } from 'pino'
import { createAuditFile } from './audit-file.ts'
import { createLineWriter } from './line-writer.ts'
import { escaped } from './unsafe-characters.ts'
import { prettyLines } from './pretty-lines.ts'
import { timestamp } from './log-lines.ts'

export type Log = Logger

/** The log of a process on standard output. */
export interface LogOutput {
  readonly log: Log
  /** Writes a line of the audit with these fields, at any level of the log, and to the file of the audit. */
  audit(fields: object): void
  /** Returns the latest events, newest first. */
  events(): readonly LogEvent[]
  /** Writes complete JSON lines, for example of another process, in the format of this log. */
  write(lines: string): void
  /** Logs an uncaught exception; on standard error if the log is silent. */
  fatal(error: Error): void
  /** Flushes the log. Called once; nothing is logged afterwards. */
  close(): Promise<void>
}

/** A line of the log that is not about one caller, as one sentence for the console; `at` is ISO 8601. */
export interface LogEvent {
  readonly at: string
  readonly level: string
  readonly text: string
}

const STDOUT = 1
const MAX_EVENTS = 50
const MAX_CHARS = 500

/** Characters of a hash of 64 hex digits that an event shows. */
const HASH_CHARS = 12

/**
 * Returns the event of a JSON line: its message with the fields that have a value, except
 * durations. Returns undefined for a line about one caller, for debugging, and for a refused
 * operator, whose lines anyone can cause.
 */
export function eventOf(line: string): LogEvent | undefined {
  const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>
  if (['debug', 'trace'].includes(String(level)) || 'ip' in fields) return undefined
  if (msg === 'audit' && fields['result'] === 'refused') return undefined
  const shown = Object.entries(fields).flatMap(([name, value]) => {
    const text = shortText(value)
    if (text === '' || name.endsWith('Ms')) return []
    return `${name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} ${text}`
  })
  const more = shown.length === 0 ? '' : ` (${shown.join(', ')})`
  return { at: String(time), level: String(level), text: (String(msg) + more).slice(0, MAX_CHARS) }
}

/** Returns the first item and the first line of a field's value, and the start of a hash; empty without a value. */
function shortText(value: unknown): string {
  if (Array.isArray(value)) {
    const more = value.length > 1 ? ` and ${value.length - 1} more` : ''
    return `${shortText(value[0])}${more}`
  }
  const text = String((value as string | number | boolean | null) ?? '')
  return /^[\da-f]{64}$/.test(text) ? text.slice(0, HASH_CHARS) : text.split('\n', 1)[0]!
}

/**
 * Opens the log on a file descriptor, by default standard output: JSON lines, or `pretty` for
 * people. While 8 MB are unread, further lines are dropped. The audit is also appended to
 * `auditFile`, if one is given.
 */
export function createLog(
  level: LevelWithSilent,
  format: 'json' | 'pretty',
  fd = STDOUT,
  auditFile?: string,
): LogOutput {
  const lines = createLineWriter(
    fd,
    (dropped) => log.warn({ lines: dropped }, 'log lines dropped; the reader is too slow'),
    throttle(({ message }) => process.stderr.write(`sluice: cannot log: ${message}\n`)),
  )
  const write = format === 'json' ? lines.write : (text: string) => lines.write(prettyLines(text))
  const events: LogEvent[] = []
  const options = { base: null, timestamp, formatters: { level: (label: string) => ({ level: label }) } }

  /** Writes a line of the log, and returns it; only its line end is not escaped. */
  function writeLine(line: string): string {
    const event = eventOf(line)
    if (event !== undefined) events.unshift(event)
    events.length = Math.min(events.length, MAX_EVENTS)
    const safe = `${escaped(line.slice(0, -1))}\n`
    write(safe)
    return safe
  }
  const log: Log = pino({ ...options, level }, { write: writeLine })
  const auditFailed = throttle(({ message: cause }: Error) => {
    log.error({ file: auditFile, cause }, 'audit file not written; its lines are only in this log')
    if (!log.isLevelEnabled('error'))
      process.stderr.write(`sluice: audit file ${auditFile} not written: ${cause}\n`)
  })
  const file = auditFile === undefined ? undefined : createAuditFile(auditFile, auditFailed)
  // A log of its own: a level of the other one hides no line of the audit.
  const auditLog = pino(
    { ...options, level: 'info' },
    {
      write(line: string) {
        const written = writeLine(line)
        file?.write(written)
      },
    },
  )
  return {
    log,
    audit: (fields) => auditLog.info(fields, 'audit'),
    events: () => events.slice(),
    write,
    fatal({ stack, message }) {
      const cause = stack ?? message
      log.fatal({ cause }, 'uncaught exception; exiting')
      if (!log.isLevelEnabled('fatal')) process.stderr.write(`sluice: uncaught: ${cause}\n`)
    },
    async close() {
      await Promise.all([file?.close(), lines.close()])
    },
  }
}

/**
 * Returns a function that calls `pass` at most once every `everyMs` milliseconds for each key, of
 * `maxKeys` at most, which callers may choose; it ignores the other calls. Without `keyOf`, all
 * calls have the same key.
 */
export function throttle<Args extends unknown[]>(
  pass: (...args: Args) => void,
  everyMs = 60_000,
  keyOf: (...args: Args) => string = () => '',
  maxKeys = 1,
) {
  const nextAt = new Map<string, number>()
  return (...args: Args): void => {
    const key = keyOf(...args)
    const now = performance.now()
    if (now < (nextAt.get(key) ?? 0)) return
    for (const [known, at] of nextAt) if (now >= at) nextAt.delete(known)
    if (nextAt.size >= maxKeys) return
    nextAt.set(key, now + everyMs)
    pass(...args)
  }
}
