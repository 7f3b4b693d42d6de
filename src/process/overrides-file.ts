import { constants, open } from 'node:fs/promises'
import { setImmediate as nextIteration } from 'node:timers/promises'
import type { Log } from '../observe/log.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { isObject, parseObject } from '../runtime/json.ts'
import { replaceFile } from '../runtime/replace-file.ts'
import { toError } from '../runtime/to-error.ts'

/** Overrides as Redis keeps them: fields with their values, and the version. */
type Fields = Readonly<Record<string, string>>

/** The version of the file's format; a file of another version is ignored. */
const FORMAT = 1
/** Maximum size in bytes of a file that is read or written; 10,000 overrides usually take 2 MB. */
const MAX_BYTES = 64 * 1024 ** 2
const TOO_LARGE = `is larger than ${MAX_BYTES} bytes`
/** Fields that are formatted at a time: 10,000 in one go would delay all requests by 10 ms. */
const SLICE = 500
/** Pause after a failed write, in milliseconds. */
const RETRY_MS = 10_000

export type OverridesFile = ReturnType<typeof createOverridesFile>

/**
 * Keeps the overrides last read from Redis in a file, for a process that starts without Redis.
 *
 * Several processes and gateways may share the file, without a lock: each replaces the whole file
 * with what it has read from Redis, so the last write is at most one poll older than the newest
 * overrides, and its writer replaces it after that poll.
 */
export function createOverridesFile(file: string, prefix: string, log: Log, retryMs = RETRY_MS) {
  /** The latest overrides, unless they are in the file. */
  let pending: Fields | undefined
  let writing: Promise<void> | undefined
  let isFailing = false
  let cancelRetry: (() => void) | undefined

  function failed(error: unknown): void {
    const { message: cause } = toError(error)
    if (!isFailing) log.warn({ file, cause }, 'overrides file not written; retrying')
    isFailing = true
    cancelRetry = SYSTEM_CLOCK.after(retryMs, startWriting)
  }

  /** Writes the latest overrides until none are pending, or until a write fails. Never rejects. */
  async function writePending(): Promise<void> {
    while (pending !== undefined) {
      const fields = pending
      try {
        const bytes = await format(fields, prefix)
        if (!(await holds(file, bytes))) await replace(file, bytes)
      } catch (error) {
        return failed(error)
      }
      if (pending === fields) pending = undefined
      if (isFailing) log.info({ file }, 'overrides file written again')
      isFailing = false
    }
  }

  function startWriting(): void {
    cancelRetry?.()
    writing ??= writePending().finally(() => (writing = undefined))
  }

  return {
    /** Writes what was read from Redis, unless the file already holds it. */
    save(fields: Fields): void {
      pending = fields
      startWriting()
    },
    /** Reads the file. Returns undefined if there is none, and with a warning if it cannot be used. */
    async read(): Promise<{ readonly fields: Fields; readonly written: string } | undefined> {
      try {
        const { bytes, writtenAt } = await readBounded(file)
        return { fields: parse(bytes, prefix), written: instant(writtenAt) }
      } catch (error) {
        const { code, message: cause } = toError(error)
        if (code !== 'ENOENT') log.warn({ file, cause }, 'overrides file ignored')
        return undefined
      }
    },
    /** Resolves when nothing is being written. */
    async close(): Promise<void> {
      await writing
      cancelRetry?.()
    },
  }
}

/** Returns the content of a file, and when it was written, in epoch milliseconds. */
async function readBounded(file: string) {
  // Without O_NONBLOCK, opening a named pipe waits for its writer.
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stat = await handle.stat()
    if (!stat.isFile()) throw new Error('is not a regular file')
    if (stat.size > MAX_BYTES) throw new Error(TOO_LARGE)
    return { bytes: await handle.readFile(), writtenAt: stat.mtime.getTime() }
  } finally {
    await handle.close()
  }
}

/** Returns the JSON of overrides, formatted in slices. */
async function format(fields: Fields, prefix: string): Promise<Buffer> {
  const slices: string[] = []
  const entries = Object.entries(fields)
  for (let i = 0; i < entries.length; i += SLICE) {
    const slice = Object.fromEntries(entries.slice(i, i + SLICE))
    // Without its braces.
    slices.push(JSON.stringify(slice).slice(1, -1))
    await nextIteration()
  }
  return Buffer.from(`{"format":${FORMAT},"prefix":${JSON.stringify(prefix)},"fields":{${slices.join(',')}}}`)
}

function parse(bytes: Buffer, prefix: string): Fields {
  const { format, prefix: written, fields } = parseObject(bytes) ?? {}
  if (format !== FORMAT || !isObject(fields)) throw new Error(`does not hold overrides in format ${FORMAT}`)
  if (written !== prefix) throw new Error('holds the overrides of another store.prefix')
  if (!Object.values(fields).every((value) => typeof value === 'string'))
    throw new Error('holds a value that is not a text')
  return fields as Fields
}

/** Returns true if a file can be read and holds these bytes. */
const holds = (file: string, bytes: Buffer): Promise<boolean> =>
  readBounded(file).then(
    (read) => read.bytes.equals(bytes),
    () => false,
  )

/** Replaces the file, which only this user may read: callers and notes of operators are in it. */
async function replace(file: string, bytes: Buffer): Promise<void> {
  if (bytes.length > MAX_BYTES) throw new Error(TOO_LARGE)
  await replaceFile(file, bytes)
}
