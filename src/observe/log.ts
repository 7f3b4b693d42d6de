import pino, { type DestinationStream, type Logger } from 'pino'
import { escaped } from './escape.ts'
import { createLines } from './lines.ts'
import { sentence } from './sentence.ts'

export type Log = Logger

export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent'

let stampedAt = 0
let stamp = ''

/** The time member of a line, with the comma before it; written out once a millisecond. */
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
  /** Writes whole lines of JSON, such as another process logged, in this one's format. */
  write(lines: string): void
  /** Writes out what waits, to be called once, last. */
  close(): Promise<void>
}

/**
 * The log on standard output: JSON lines, or `pretty` for people. JSON lines are gathered and written a few times a second;
 * when nobody reads them, what does not fit in 8 MB is lost rather than kept.
 */
export async function createLog(level: LogLevel, format: 'json' | 'pretty'): Promise<LogOutput> {
  const options = {
    level,
    base: null,
    timestamp,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  if (format === 'pretty') {
    // Loaded for people alone: it is as large as all the rest of the log.
    const { default: pretty } = await import('pino-pretty')
    const stream = pretty({
      messageFormat: (line) => sentence(line),
      hideObject: true,
      colorize: process.stdout.isTTY,
      ignore: 'pid,hostname',
      sync: true,
      translateTime: 'HH:MM:ss.l',
    })
    return {
      log: pino(options, stream as DestinationStream),
      write: (lines) => void stream.write(lines),
      close: () => Promise.resolve(),
    }
  }
  const lines = createLines(process.stdout.fd, (lost) =>
    log.warn({ lines: lost }, 'log lines were lost, since nobody read the log'),
  )
  // Each ends with the one line end that is meant.
  const log = pino(options, { write: (line) => lines.write(`${escaped(line.slice(0, -1))}\n`) })
  return { log, ...lines }
}
