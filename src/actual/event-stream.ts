import { findAtEnd, type Name, type Written } from './json-end.ts'

const CR = 0x0d
const LF = 0x0a
const SPACE = 0x20
const DATA = Buffer.from('data')
const DATA_COLON = Buffer.from('data:')
const BYTE_ORDER_MARK = Buffer.from('\ufeff')

/**
 * Returns the value at a path in the last event that has one, other than null, of the end of an
 * event stream (HTML, section 9.2). The data of an event is JSON if it has a value; other events, such
 * as OpenAI's `[DONE]`, are passed over. An event whose beginning is cut off (`isCut`) is not read.
 * Takes linear time.
 */
export function findInEvents(bytes: Buffer, path: readonly Name[], isCut: boolean): Written | undefined {
  /** The data of the lines of an event, the last line first. */
  let lines: Buffer[] = []
  let end = bytes.length
  for (;;) {
    let start = end
    while (start > 0 && bytes[start - 1] !== LF && bytes[start - 1] !== CR) start--
    if (start === 0 && isCut) return undefined
    const from = startOfLine(bytes, start)
    const data = bytes[from] === DATA[0] ? dataOf(bytes.subarray(from, end)) : undefined
    if (data !== undefined) lines.push(data)
    if (start === end || start === 0) {
      const found = findInEvent(lines, path)
      if (found !== undefined) return found
      lines = []
    }
    if (start === 0) return undefined
    const isPair = bytes[start - 1] === LF && bytes[start - 2] === CR
    end = isPair ? start - 2 : start - 1
  }
}

/** Returns the start of a line without the byte order mark of the stream. */
function startOfLine(bytes: Buffer, start: number): number {
  const isMarked = start === 0 && bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK)
  return isMarked ? BYTE_ORDER_MARK.length : start
}

/** Returns the data of a line that has some. */
function dataOf(line: Buffer): Buffer | undefined {
  if (line.equals(DATA)) return line.subarray(line.length)
  if (!line.subarray(0, DATA_COLON.length).equals(DATA_COLON)) return undefined
  const at = DATA_COLON.length
  return line.subarray(line[at] === SPACE ? at + 1 : at)
}

function findInEvent(lines: readonly Buffer[], path: readonly Name[]): Written | undefined {
  if (lines.length === 0) return undefined
  const data = lines.length === 1 ? lines[0]! : joinLines(lines)
  const found = findAtEnd(data, path, false)
  return found === 'null' ? undefined : found
}

function joinLines(lines: readonly Buffer[]): Buffer {
  const newLine = Buffer.from('\n')
  const parts = lines.toReversed().flatMap((line, i) => (i === 0 ? [line] : [newLine, line]))
  return Buffer.concat(parts)
}
