import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** A page is written when it is full, or when `EVERY_MS` have passed. */
const PAGE_BYTES = 64 * 1024
const EVERY_MS = 100
/** UTF-8 bytes of one UTF-16 unit, at most. */
const MAX_BYTES_PER_CHAR = 3
/** Bytes that may wait for a slow reader; lines beyond are dropped. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024
const CLOSE_MS = 1000
/** Of what still waits when the process exits, a pipe gets the last bytes. */
const MAX_EXIT_BYTES = 32 * 1024

/** Writes bytes, then calls `done`: true if no more can be written. */
type Sink = (bytes: Buffer, done: (closed: boolean) => void) => void

/**
 * Writes lines to a file descriptor, many at a time. Each is encoded into a page at once: kept as text, lines outlive several
 * collections of garbage, which cost more than all else about them. A process whose reader hangs can still exit. A reader that
 * left ends the writing, a full disk loses lines; neither ends the process. `onDropped` is called with how many lines were
 * dropped, once there is room again.
 */
export function createLineWriter(fd: number, onDropped: (lines: number) => void) {
  const kind = fstatSync(fd)
  const isPipe = kind.isFIFO() || kind.isSocket()
  const sink = isPipe ? pipeSink(fd) : fileSink(fd)
  let page: Buffer = Buffer.allocUnsafeSlow(PAGE_BYTES)
  let used = 0
  /** A page that was written, for the next lines. */
  let spare: Buffer | undefined
  const full: Buffer[] = []
  let waitingBytes = 0
  let dropped = 0
  let writing = false
  let closed = false
  let onFlushed: (() => void) | undefined
  const timer = setInterval(flush, EVERY_MS).unref()

  function enqueue(bytes: Buffer): void {
    full.push(bytes)
    waitingBytes += bytes.length
  }

  function endPage(): void {
    if (used === 0) return
    enqueue(page.subarray(0, used))
    page = spare ?? Buffer.allocUnsafeSlow(PAGE_BYTES)
    spare = undefined
    used = 0
  }

  function flush(): void {
    if (writing) return
    if (full.length === 0) endPage()
    const bytes = full.shift()
    if (bytes === undefined || closed) return onFlushed?.()
    writing = true
    sink(bytes, (isClosed) => {
      writing = false
      closed = isClosed
      waitingBytes -= bytes.length
      if (bytes.buffer.byteLength === PAGE_BYTES) spare = Buffer.from(bytes.buffer)
      if (closed) full.length = 0
      if (dropped > 0 && waitingBytes < MAX_WAITING_BYTES / 2) {
        const lines = dropped
        dropped = 0
        onDropped(lines)
      }
      if (full.length > 0 || onFlushed) flush()
    })
  }

  /** Of a process that exits without `close`: a pipe whose reader is slow would block all of it. */
  function flushSync(): void {
    endPage()
    const bytes = Buffer.concat(full)
    try {
      if (bytes.length > 0) writeSync(fd, isPipe ? bytes.subarray(-MAX_EXIT_BYTES) : bytes)
    } catch {
      // The reader has no room, or has left.
    }
  }
  process.once('exit', flushSync)

  return {
    write(line: string): void {
      if (closed) return
      if (waitingBytes > MAX_WAITING_BYTES) {
        dropped++
        return
      }
      const maxBytes = line.length * MAX_BYTES_PER_CHAR
      if (used + maxBytes > PAGE_BYTES) {
        endPage()
        if (maxBytes > PAGE_BYTES) enqueue(Buffer.from(line))
        flush()
      }
      if (maxBytes <= PAGE_BYTES) used += page.write(line, used)
    },
    /** Resolves when all is written, or after `CLOSE_MS`. */
    async close(): Promise<void> {
      clearInterval(timer)
      const flushed = new Promise<void>((resolve) => (onFlushed = resolve))
      flush()
      await Promise.race([flushed, sleep(CLOSE_MS)])
      process.removeListener('exit', flushSync)
    },
  }
}

/** Writes to a pipe without a thread, which a reader that hangs would hold for ever. */
function pipeSink(fd: number): Sink {
  const pipe = new Socket({ fd, readable: false, writable: true })
  pipe.unref()
  let closed = false
  pipe.on('error', () => (closed = true))
  return (bytes, done) => {
    if (closed) done(true)
    else pipe.write(bytes, (error) => done(error != null))
  }
}

/** Writes to a file, in a thread. */
function fileSink(fd: number): Sink {
  return function sink(bytes, done) {
    write(fd, bytes, (error, written) => {
      // What a full disk does not take is lost; later lines may find room.
      if (error || written === bytes.length) done(error?.code === 'EPIPE' || error?.code === 'EBADF')
      else sink(bytes.subarray(written), done)
    })
  }
}
