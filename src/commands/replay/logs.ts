import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/files.ts'

const STDIN = '-'
const PIECE_BYTES = 128 * 1024
/** Most characters of a line that spans pieces. The gateway's own lines are a few kilobytes at most. */
const MOST_LINE_CHARS = 64 * 1024

/** What is reported while a log is read. */
export interface Reading {
  /** Bytes as stored. */
  onRead(bytes: number): void
  /** A line was left out that is so long that the gateway did not write it. */
  onOverlong(): void
}

/** Bytes of all logs as stored; NaN where one is not known, as of a pipe. */
export async function sizeOf(names: readonly string[]): Promise<number> {
  const sizes = names.map(async (name) => {
    const kind = name === STDIN ? undefined : await stat(name).catch(() => undefined)
    return kind?.isFile() === true ? kind.size : NaN
  })
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

/** Reads a log, `-` being `stdin`: its lines in batches, decompressed if they are gzip. Rejects with words for the operator. */
export async function* readLines(
  name: string,
  stdin: Readable,
  { onRead, onOverlong }: Reading,
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
    throw unreadable(name === STDIN ? 'standard input' : name, error)
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

function unreadable(name: string, error: unknown): Error {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'Z_BUF_ERROR') return new Error(`${name}: ends in the middle of what gzip wrote`)
  if (code?.startsWith('Z_') === true) return new Error(`${name}: is not what gzip wrote`)
  return new Error(`${name}: ${reason(error)}`)
}
