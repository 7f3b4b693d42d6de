import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { PassThrough, pipeline, type Readable, type Transform } from 'node:stream'
import zlib from 'node:zlib'
import { reason } from '../../config/text.ts'
import { toError } from '../../runtime/to-error.ts'

const CHUNK_BYTES = 128 * 1024
/** Maximum length of a line. The gateway's own lines have a few kilobytes at most. */
export const MAX_LINE_CHARS = 64 * 1024

/** Compressions: the first bytes of a file, and the program that decompresses it to standard output. */
const COMPRESSIONS = [
  // RFC 1952 section 2.3.1, RFC 8878 section 3.1.1.
  { name: 'gzip', magic: '1f8b', program: 'gzip -dc' },
  { name: 'zstd', magic: '28b52ffd', program: 'zstd -dc' },
  { name: 'xz', magic: 'fd377a585a00', program: 'xz -dc' },
  { name: 'bzip2', magic: '425a68', program: 'bzip2 -dc' },
] as const
const MAGIC_BYTES = 6

/**
 * Reads a log in batches of lines, and reports the stored bytes. Decompresses gzip, and zstd where
 * Node.js can. Keeps only the beginning of a line that is too long. The last batch is the end of the
 * log after its last line break.
 */
export async function* readLines(name: string, stdin: Readable, onRead: (bytes: number) => void) {
  let rest = ''
  try {
    const stored = name === '-' ? stdin : createReadStream(name, { highWaterMark: CHUNK_BYTES })
    const decoder = await createDecoder(stored, name === '-' ? 'LOG' : name)
    stored.on('data', ({ length }: Buffer) => onRead(length))
    const chunks: AsyncIterable<string> = pipeline(stored, decoder.setEncoding('utf8'), () => {})
    for await (const chunk of chunks) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop()!.slice(0, MAX_LINE_CHARS + 1)
      yield lines
    }
  } catch (error) {
    throw new Error(`${titleOf(name)}: ${whyUnread(error)}`, { cause: error })
  }
  yield [rest]
}

/** Returns the name of a log in messages. */
export const titleOf = (name: string): string => (name === '-' ? 'standard input' : name)

function whyUnread(error: unknown): string {
  if (error instanceof Undecodable) return error.message
  const { code = '', message } = toError(error)
  // The decoder of zstd ends with codes of both kinds.
  const isOfDecoder = code.startsWith('Z_') || code.startsWith('ZSTD_')
  return isOfDecoder ? `is a compressed file that is damaged or cut: ${message}` : reason(error)
}

/** A compression that this Node.js cannot read. */
class Undecodable extends Error {}

/** Creates the decoder for the first bytes, which it reads and puts back. */
async function createDecoder(stream: Readable, file: string): Promise<Transform> {
  await once(stream, 'readable')
  const head = stream.read() as Buffer | null
  if (head !== null) stream.unshift(head)
  const magic = head?.subarray(0, MAGIC_BYTES).toString('hex') ?? ''
  const compression = COMPRESSIONS.find((one) => magic.startsWith(one.magic))
  if (compression === undefined) return new PassThrough()
  const { name, program } = compression
  if (name === 'gzip') return zlib.createGunzip({ chunkSize: CHUNK_BYTES })
  if (name === 'zstd') {
    // Since Node.js 22.15.
    const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform }
    if (createZstdDecompress !== undefined) return createZstdDecompress()
  }
  stream.destroy()
  throw new Undecodable(`is compressed by ${name}; decompress it: ${program} ${file} | sluice replay -`)
}
