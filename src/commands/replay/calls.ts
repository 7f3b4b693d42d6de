import type { Readable } from 'node:stream'
import { type Line, type LoggedCall, type Unreadable, unreadable } from './formats/call.ts'
import { FORMAT_NAMES, type FormatName, hasProcessLog, type Recognized } from './formats/formats.ts'
import { createRecognizer, whyUnreadable } from './formats/formats.ts'
import { readAccessLine } from './formats/sluice.ts'
import { MAX_LINE_CHARS, readLines, titleOf } from './lines.ts'

/** Maximum lines, from the first that is not empty, by which a format is recognised. */
const FIRST_LINES = 1000

/** A log, how it was read, and which of its lines could not be. */
export interface ReadLog {
  readonly log: string
  /** Null for a log without lines. */
  format: FormatName | null
  /** Lines of calls that could not be read. */
  unreadable: number
  /** The first of them. */
  first?: { readonly line: number; readonly why: string }
}

/** Counters of lines that are not replayed. */
export type SkippedLines = Record<'refusedBefore' | 'malformed' | 'other', number>

interface Options {
  readonly among: readonly FormatName[]
  readonly stdin: Readable
  readonly skipped: SkippedLines
  onRead(bytes: number): void
}

/**
 * Reads the calls of a log in batches, and counts its other lines. Recognises its format by its first
 * lines; throws if none of them is of a request.
 */
export async function* readCalls(read: ReadLog, options: Options) {
  const { among, stdin, skipped, onRead } = options
  let callsOf: ReturnType<typeof createCounter> | undefined
  const recognize = createRecognizer(among)
  /** The number of empty lines at the start, and the lines after them. */
  let empty = 0
  const first: string[] = []
  for await (const batch of readLines(read.log, stdin, onRead)) {
    if (callsOf === undefined) {
      for (const text of batch)
        if (first.length === 0 && !isText(text)) empty++
        else first.push(text)
      const found = recognize(batch.filter(isText))
      if (found === undefined && first.length < FIRST_LINES) continue
      callsOf = createCounter(read, found ?? processLogOf(read.log, first, among, empty), skipped, empty)
      yield callsOf(first)
    } else yield callsOf(batch)
  }
  if (callsOf === undefined && first.length > 0)
    yield createCounter(read, processLogOf(read.log, first, among, empty), skipped, empty)(first)
}

const isText = (line: string): boolean => line.trim() !== ''

/**
 * Returns the reader of a log in which only lines of Sluice's process log were found; throws if none
 * was. The first line is not empty, and comes after `empty` others.
 */
function processLogOf(
  log: string,
  lines: readonly string[],
  among: readonly FormatName[],
  empty: number,
): Recognized {
  if (hasProcessLog(lines, among)) return { format: 'sluice', read: readAccessLine }
  const why = whyUnreadable(lines[0]!, among)
  throw new Error(
    `${titleOf(log)}: no line of a request was found; ${why} (line ${empty + 1}). Name its format by --format, one of ${FORMAT_NAMES.join(', ')}.`,
  )
}

/** Creates the function that returns the calls of the lines after `before` others, and counts the rest of them. */
function createCounter(log: ReadLog, { format, read }: Recognized, skipped: SkippedLines, before: number) {
  log.format = format
  let number = before

  function count(line: Exclude<Line, LoggedCall>): void {
    if (typeof line === 'string') skipped[line]++
    else {
      log.unreadable++
      log.first ??= { line: number, why: line.unreadable }
    }
  }

  return (lines: readonly string[]): readonly LoggedCall[] => {
    const calls: LoggedCall[] = []
    for (const text of lines) {
      number++
      if (text === '' || !isText(text)) continue
      const line = text.length > MAX_LINE_CHARS ? tooLong(format) : read(text)
      if (typeof line === 'object' && 'decidedAt' in line) calls.push(line)
      else count(line)
    }
    return calls
  }
}

/** Sluice's own lines are shorter: a longer one is of another program that shares its log. */
const tooLong = (format: FormatName): 'other' | Unreadable =>
  format === 'sluice' ? 'other' : unreadable(`is longer than ${MAX_LINE_CHARS} characters`)
