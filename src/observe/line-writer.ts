import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** Lines are written when a page is full, or every `FLUSH_MS` milliseconds. */
const PAGE_BYTES = 64 * 1024
const FLUSH_MS = 100
/** Maximum UTF-8 bytes of a UTF-16 unit. */
const MAX_BYTES_PER_CHAR = 3
/** Maximum bytes that wait for a slow reader; further lines are dropped. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024
const CLOSE_MS = 1000
/** Maximum bytes written to a pipe when the process exits without `close`: a slow reader would block the exit. */
const MAX_EXIT_BYTES = 32 * 1024

/** Writes bytes, then calls `done`; with true if the reader has closed the file descriptor. */
type Sink = (bytes: Buffer, done: (closed: boolean) => void) => void

/**
 * Writes lines to a file descriptor in pages. Each line is encoded into a page at once: strings would survive several garbage
 * collections, which cost more than the rest of logging. A reader that hangs does not block the exit of the process; a closed
 * reader ends the writing; a full disk loses lines. `onDropped` is called with the number of dropped lines once there is room.
 */
export function createLineWriter(fd: number, onDropped: (lines: number) => void) {
  const kind = fstatSync(fd)
  const isPipe = kind.isFIFO() || kind.isSocket()
  const sink = isPipe ? pipeSink(fd) : fileSink(fd)
  let page: Buffer = Buffer.allocUnsafeSlow(PAGE_BYTES)
  let used = 0
  /** A written page, for reuse: a new page for each write takes 130 ns more per line of 400 bytes, of 70. */
  let spare: Buffer | undefined
  const queue: Buffer[] = []
  let waitingBytes = 0
  let dropped = 0
  let writing = false
  let closed = false
  let onFlushed: (() => void) | undefined
  const timer = setInterval(flush, FLUSH_MS).unref()

  function enqueue(bytes: Buffer): void {
    queue.push(bytes)
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
    if (queue.length === 0) endPage()
    const bytes = queue.shift()
    if (bytes === undefined || closed) return onFlushed?.()
    writing = true
    sink(bytes, (isClosed) => {
      writing = false
      closed = isClosed
      waitingBytes -= bytes.length
      if (bytes.buffer.byteLength === PAGE_BYTES) spare = Buffer.from(bytes.buffer)
      if (closed) queue.length = 0
      if (dropped > 0 && waitingBytes < MAX_WAITING_BYTES / 2) {
        const lines = dropped
        dropped = 0
        onDropped(lines)
      }
      if (queue.length > 0 || onFlushed) flush()
    })
  }

  function flushSync(): void {
    endPage()
    const bytes = Buffer.concat(queue)
    try {
      if (bytes.length > 0) writeSync(fd, isPipe ? bytes.subarray(-MAX_EXIT_BYTES) : bytes)
    } catch {
      // The pipe is full or closed.
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
    /** Resolves when all lines are written, or after `CLOSE_MS`. */
    async close(): Promise<void> {
      clearInterval(timer)
      const flushed = new Promise<void>((resolve) => (onFlushed = resolve))
      flush()
      await Promise.race([flushed, sleep(CLOSE_MS)])
      process.removeListener('exit', flushSync)
    },
  }
}

/** Writes to a pipe without a thread, which a reader that hangs would block forever. */
function pipeSink(fd: number): Sink {
  const pipe = new Socket({ fd, readable: false, writable: true }).unref()
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
      // Bytes for which a full disk has no room are lost; later lines may have room.
      if (error || written === bytes.length) done(error?.code === 'EPIPE' || error?.code === 'EBADF')
      else sink(bytes.subarray(written), done)
    })
  }
}
