import { fstatSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { pipeline, Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/files.ts'

/** A log that can be read once. */
export interface Log {
  readonly name: string
  /** Bytes as stored; undefined where nobody knows, as of a pipe. */
  readonly size: number | undefined
  /** The lines, some at a time, decompressed where they are gzip; rejects with words for the operator. */
  lines(): AsyncGenerator<readonly string[]>
}

/** What is told while logs are read. */
export interface Reading {
  /** Bytes as stored. */
  bytes(count: number): void
  /** A line so long that the gateway did not write it was passed over. */
  overlong(): void
}

const STANDARD_INPUT = '-'
const PIECE_BYTES = 128 * 1024
/** The gateway's own lines are a few kilobytes at most. */
const MOST_LINE_BYTES = 64 * 1024
const NEWLINE = 0x0a

/** Opens every log, `-` being standard input; rejects with one error that names all that cannot be read. */
export async function openLogs(names: readonly string[], reading: Reading): Promise<readonly Log[]> {
  const opened = await Promise.allSettled(names.map((name) => openLog(name, reading)))
  const failed = opened.flatMap((one) => (one.status === 'rejected' ? [(one.reason as Error).message] : []))
  if (failed.length > 0) throw new Error(failed.join('; '))
  return opened.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
}

async function openLog(name: string, reading: Reading): Promise<Log> {
  if (name === STANDARD_INPUT) {
    const kind = fstatSync(0)
    return logOf('standard input', kind.isFile() ? kind.size : undefined, () => process.stdin, reading)
  }
  let handle: FileHandle
  try {
    handle = await open(name)
  } catch (error) {
    throw unreadable(name, error)
  }
  const kind = await handle.stat()
  if (kind.isDirectory()) {
    await handle.close()
    throw new Error(`${name}: is a directory, not a file`)
  }
  const stream = () => handle.createReadStream({ highWaterMark: PIECE_BYTES })
  return logOf(name, kind.isFile() ? kind.size : undefined, stream, reading)
}

function logOf(name: string, size: number | undefined, open: () => Readable, reading: Reading): Log {
  return {
    name,
    size,
    async *lines() {
      try {
        yield* linesOf(plain(counted(open(), reading)), reading)
      } catch (error) {
        throw unreadable(name, error)
      }
    },
  }
}

async function* counted(stream: Readable, { bytes }: Reading): AsyncGenerator<Buffer> {
  for await (const piece of stream as AsyncIterable<Buffer>) {
    bytes(piece.length)
    yield piece
  }
}

/** The bytes themselves, or what they are the gzip of: RFC 1952 section 2.3.1. */
async function* plain(stored: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  let first = Buffer.alloc(0)
  while (first.length < 2) {
    const { value, done } = await stored.next()
    if (done === true) break
    first = Buffer.concat([first, value])
  }
  const whole = (async function* () {
    yield first
    yield* stored
  })()
  yield* first[0] === 0x1f && first[1] === 0x8b ? gunzipped(whole) : whole
}

function gunzipped(stored: AsyncGenerator<Buffer>): AsyncIterable<Buffer> {
  const gunzip = createGunzip({ chunkSize: PIECE_BYTES })
  // Errors on the way are those of the stream that is read.
  pipeline(Readable.from(stored), gunzip, () => {})
  return gunzip
}

async function* linesOf(
  pieces: AsyncGenerator<Buffer>,
  { overlong }: Reading,
): AsyncGenerator<readonly string[]> {
  /** What has come of a line whose end has not. */
  let begun: Buffer[] = []
  let begunBytes = 0
  let skips = false
  for await (const piece of pieces) {
    let start = 0
    const end = piece.lastIndexOf(NEWLINE) + 1
    if (skips && end > 0) {
      start = piece.indexOf(NEWLINE) + 1
      skips = false
    }
    if (end > start) {
      const whole = piece.subarray(start, end)
      yield (begunBytes === 0 ? whole : Buffer.concat([...begun, whole])).toString().split('\n')
    }
    if (end > 0) {
      begun = []
      begunBytes = 0
    }
    if (skips || end === piece.length) continue
    begun.push(piece.subarray(end))
    begunBytes += piece.length - end
    if (begunBytes <= MOST_LINE_BYTES) continue
    begun = []
    begunBytes = 0
    skips = true
    overlong()
  }
  if (begunBytes > 0) yield [Buffer.concat(begun).toString()]
}

function unreadable(name: string, error: unknown): Error {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'Z_BUF_ERROR') return new Error(`${name}: ends in the middle of what gzip wrote`)
  if (code?.startsWith('Z_') === true) return new Error(`${name}: is not what gzip wrote`)
  return new Error(`${name}: ${reason(error)}`)
}
