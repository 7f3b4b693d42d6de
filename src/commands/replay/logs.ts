import { once } from 'node:events'
import { constants, createReadStream } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { reason } from '../../config/files.ts'

/** A log that can be read once. */
export interface Log {
  /** Bytes as stored; undefined where they are not known, as of a pipe. */
  readonly size: number | undefined
  readonly stored: Readable & { readonly bytesRead?: number }
  /** The lines, in batches, decompressed if they are gzip; rejects with words for the operator. */
  readonly lines: AsyncIterable<readonly string[]>
}

const PIECE_BYTES = 128 * 1024
/** Most characters of a line that spans pieces. The gateway's own lines are a few kilobytes at most. */
const MOST_LINE_CHARS = 64 * 1024

/** Opens every log, `-` being `stdin`; rejects with one error that names all that cannot be read. */
export async function openLogs(
  names: readonly string[],
  stdin: Readable,
  onOverlong: () => void,
): Promise<readonly Log[]> {
  const sizes = await Promise.allSettled(names.map(sizeOf))
  const failed = sizes.flatMap((one) => (one.status === 'rejected' ? [(one.reason as Error).message] : []))
  if (failed.length > 0) throw new Error(failed.join('; '))
  return names.map((name, i) => {
    const { value: size } = sizes[i] as PromiseFulfilledResult<number | undefined>
    const stored = name === '-' ? stdin : createReadStream(name, { highWaterMark: PIECE_BYTES })
    return { size, stored, lines: linesOf(name === '-' ? 'standard input' : name, stored, onOverlong) }
  })
}

async function sizeOf(name: string): Promise<number | undefined> {
  if (name === '-') return undefined
  try {
    await access(name, constants.R_OK)
    const kind = await stat(name)
    if (kind.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' })
    return kind.isFile() ? kind.size : undefined
  } catch (error) {
    throw unreadable(name, error)
  }
}

/** Reports a line so long that the gateway did not write it to `onOverlong`, and leaves it out. */
async function* linesOf(
  name: string,
  stored: Readable,
  onOverlong: () => void,
): AsyncGenerator<readonly string[]> {
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
      if (skips) rest = ''
      else if (rest.length > MOST_LINE_CHARS) {
        rest = ''
        skips = true
        onOverlong()
      }
    }
  } catch (error) {
    throw unreadable(name, error)
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
