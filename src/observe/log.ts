import pino, { type LevelWithSilent, type Logger } from 'pino'
import { createLineWriter } from './line-writer.ts'
import { escaped, prettyLines } from './pretty.ts'

export type Log = Logger

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
  /** What the level lets through, for lines that are written without `log`; kept up to date. */
  readonly enabled: Readonly<Record<'info' | 'error', boolean>>
  setLevel(level: LevelWithSilent): void
  /** Logs an uncaught exception, on standard error if the log is silent. */
  fatal(error: Error): void
  /** Flushes the log; to be called once, last. */
  close(): Promise<void>
}

/** Opens the log on standard output: lines of JSON, or `pretty` for people. Beyond 8 MB that are not read, they are dropped. */
export function createLog(level: LevelWithSilent, format: 'json' | 'pretty'): LogOutput {
  const lines = createLineWriter(process.stdout.fd, onDropped)
  const write = format === 'json' ? lines.write : (text: string) => lines.write(prettyLines(text))
  const log = pino(
    { level, base: null, timestamp, formatters: { level: (label: string) => ({ level: label }) } },
    // Each ends with the one line end that is meant.
    { write: (line: string) => write(`${escaped(line.slice(0, -1))}\n`) },
  )
  function onDropped(dropped: number): void {
    log.warn({ lines: dropped }, 'log lines dropped; the reader is too slow')
  }
  const enabled = { info: false, error: false }
  function setLevel(next: LevelWithSilent): void {
    log.level = next
    enabled.info = log.isLevelEnabled('info')
    enabled.error = log.isLevelEnabled('error')
  }
  setLevel(level)
  return {
    log,
    write,
    enabled,
    setLevel,
    fatal({ stack, message }) {
      const cause = stack ?? message
      log.fatal({ cause }, 'uncaught exception; exiting')
      if (!log.isLevelEnabled('fatal')) process.stderr.write(`sluice: uncaught: ${cause}\n`)
    },
    close: lines.close,
  }
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
