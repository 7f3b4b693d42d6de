import pino, { type Logger } from 'pino'
import { createLines, type Lines } from './lines.ts'
import { escaped, prettyLine } from './pretty.ts'

export type Log = Logger

export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent'

let stampedAt = 0
let stamp = ''

/** Returns the time member of a line, with the comma before it; formatted once a millisecond. */
export function timestamp(): string {
  const now = Date.now()
  if (now !== stampedAt) {
    stampedAt = now
    stamp = `,"time":"${new Date(now).toISOString()}"`
  }
  return stamp
}

export interface LogOutput {
  readonly log: Log
  /** Writes whole lines of JSON, such as another process logged, in this log's format. */
  write(lines: string): void
  /** Logs an uncaught exception, on standard error if the log is silent. */
  fatal(error: Error): void
  /** Flushes the log; to be called once, last. */
  close(): Promise<void>
}

/**
 * Opens the log on standard output: JSON lines, or `pretty` for people. JSON lines are buffered and written a few times a
 * second; beyond 8 MB that nobody reads, lines are dropped.
 */
export async function createLog(level: LogLevel, format: 'json' | 'pretty'): Promise<LogOutput> {
  const { write, close } =
    format === 'pretty' ? await openPretty() : createLines(process.stdout.fd, onDropped)
  const log = pino(
    { level, base: null, timestamp, formatters: { level: (label: string) => ({ level: label }) } },
    // Each ends with the one line end that is meant.
    { write: (line: string) => write(`${escaped(line.slice(0, -1))}\n`) },
  )
  function onDropped(lines: number): void {
    log.warn({ lines }, 'log lines dropped; the reader is too slow')
  }
  return {
    log,
    write,
    fatal({ stack, message }) {
      const cause = stack ?? message
      log.fatal({ cause }, 'uncaught exception; exiting')
      if (!log.isLevelEnabled('fatal')) process.stderr.write(`sluice: uncaught: ${cause}\n`)
    },
    close,
  }
}

/** Loads pino-pretty for people alone: it is as large as all the rest of the log. */
async function openPretty(): Promise<Lines> {
  const { default: pretty } = await import('pino-pretty')
  const stream = pretty({
    messageFormat: (line) => prettyLine(line),
    hideObject: true,
    colorize: process.stdout.isTTY,
    ignore: 'pid,hostname',
    sync: true,
    translateTime: 'HH:MM:ss.l',
  })
  return { write: (lines) => void stream.write(lines), close: () => Promise.resolve() }
}

/** Returns a function that calls `pass` at most once in so many milliseconds, and drops the other calls. */
export function atMostEvery<Values extends readonly unknown[]>(
  everyMs: number,
  pass: (...values: Values) => void,
): (...values: Values) => void {
  let nextAt = 0
  return (...values) => {
    const now = performance.now()
    if (now < nextAt) return
    nextAt = now + everyMs
    pass(...values)
  }
}
