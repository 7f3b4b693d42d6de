import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/files.ts'
import type { LoggedCall } from './access-line.ts'

const STDIN = '-'
const PIECE_BYTES = 128 * 1024
/** Most characters of a line that spans pieces. The gateway's own lines are a few kilobytes at most. */
const MOST_LINE_CHARS = 64 * 1024

/** How long a decision may precede its line to be put in order, and most calls that wait for that. */
const WINDOW_MS = 60_000
const MOST_CALLS = 400_000
/** The part of both by which they are exceeded, so that the waiting calls are sorted only now and then. */
const SLACK = 0.1

/** Bytes of all logs as stored; NaN where one is not known, as of a pipe. */
export async function sizeOf(names: readonly string[]): Promise<number> {
  const sizes = names.map(async (name) => {
    const kind = name === STDIN ? undefined : await stat(name).catch(() => undefined)
    return kind?.isFile() === true ? kind.size : NaN
  })
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

/** Reads a log, plain or gzip, in batches of lines; reports the bytes read, as stored, and each line too long to be the gateway’s. */
export async function* readLines(
  name: string,
  stdin: Readable,
  onRead: (bytes: number) => void,
  onOverlong: () => void,
): AsyncGenerator<readonly string[]> {
  const stored: Readable & { readonly bytesRead?: number } =
    name === STDIN ? stdin : createReadStream(name, { highWaterMark: PIECE_BYTES })
  let reported = 0
  /** The line whose end is still to come. */
  let rest = ''
  let skips = false
  try {
    const plain = (await isGzip(stored))
      ? pipeline(stored, createGunzip({ chunkSize: PIECE_BYTES }), () => {})
      : stored
    for await (const piece of plain.setEncoding('utf8') as AsyncIterable<string>) {
      const lines = (rest + piece).split('\n')
      rest = lines.pop()!
      if (skips && lines.length > 0) {
        lines.shift()
        skips = false
      }
      yield lines
      const { bytesRead = 0 } = stored
      onRead(bytesRead - reported)
      reported = bytesRead
      if (skips) rest = ''
      else if (rest.length > MOST_LINE_CHARS) {
        rest = ''
        skips = true
        onOverlong()
      }
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

/** Passes on the calls of several logs by the time of their lines, by which each log is sorted. */
export async function merge(
  logs: readonly AsyncIterator<LoggedCall, void>[],
  take: (call: LoggedCall) => void,
): Promise<void> {
  const heads: { readonly log: AsyncIterator<LoggedCall, void>; call: LoggedCall }[] = []
  for (const log of logs) {
    const { value } = await log.next()
    if (value !== undefined) heads.push({ log, call: value })
  }
  while (heads.length > 0) {
    const head = heads.reduce((first, one) => (one.call.loggedAt < first.call.loggedAt ? one : first))
    take(head.call)
    const { value } = await head.log.next()
    if (value === undefined) heads.splice(heads.indexOf(head), 1)
    else head.call = value
  }
}

/** Passes calls on in the order in which they were decided, with that instant; one that comes too late counts as decided when the last one was. */
export function createOrder(
  pass: (call: LoggedCall, nowMs: number) => void,
  windowMs = WINDOW_MS,
  mostCalls = MOST_CALLS,
) {
  const waiting: LoggedCall[] = []
  const late = { calls: 0, byMs: 0 }
  let newestAt = -Infinity
  let sortedAt = -Infinity
  let nowMs = -Infinity

  function passBefore(decidedBefore: number, mostLeft: number): void {
    waiting.sort((a, b) => a.decidedAt - b.decidedAt)
    const rest = waiting.findIndex(({ decidedAt }) => decidedAt >= decidedBefore)
    const due = rest === -1 ? waiting.length : rest
    for (const call of waiting.splice(0, Math.max(due, waiting.length - mostLeft))) {
      nowMs = Math.max(nowMs, call.decidedAt)
      pass(call, nowMs)
    }
    sortedAt = newestAt
  }

  return {
    take(call: LoggedCall): void {
      if (call.decidedAt < nowMs) {
        late.calls++
        late.byMs = Math.max(late.byMs, nowMs - call.decidedAt)
      }
      waiting.push(call)
      newestAt = Math.max(newestAt, call.loggedAt)
      const isDue = newestAt > sortedAt + windowMs * SLACK || waiting.length > mostCalls * (1 + SLACK)
      if (isDue) passBefore(newestAt - windowMs, mostCalls)
    },
    /** Passes on what still waits. */
    end: (): void => passBefore(Infinity, 0),
    /** How many calls came after later ones had been passed on, and by how much at most. */
    late,
  }
}
