import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** Characters that are written at once when so many are buffered; fewer are written every `EVERY_MS`. */
const FLUSH_CHARS = 64 * 1024
const EVERY_MS = 100
/** UTF-8 bytes of one UTF-16 unit, at most. */
const MAX_BYTES_PER_CHAR = 3
const PAGE_BYTES = (FLUSH_CHARS + 16 * 1024) * MAX_BYTES_PER_CHAR
/** Characters that may wait for a slow reader; lines beyond are dropped. */
const MAX_CHARS = 8 * 1024 * 1024
const CLOSE_MS = 1000
/** Of what is still buffered when the process exits, a pipe gets the last characters. */
const MAX_EXIT_CHARS = 32 * 1024

/** Writes bytes, then calls `done`: true if no more can be written. */
type Sink = (bytes: Buffer, done: (closed: boolean) => void) => void

/**
 * Writes lines to a file descriptor, many at a time. They are buffered as text and encoded together: a third of what
 * sonic-boom costs per line, and a process whose reader hangs can still exit. A reader that left ends the writing, a full disk
 * loses lines; neither ends the process. `onDropped` is called with how many lines were dropped, once there is room again.
 */
export function createLines(fd: number, onDropped: (lines: number) => void) {
  const kind = fstatSync(fd)
  const isPipe = kind.isFIFO() || kind.isSocket()
  const sink = isPipe ? pipeSink(fd) : fileSink(fd)
  const page = Buffer.allocUnsafeSlow(PAGE_BYTES)
  let buffered = ''
  let dropped = 0
  let writing = false
  let closed = false
  let onFlushed: (() => void) | undefined
  const timer = setInterval(flush, EVERY_MS).unref()

  function flush(): void {
    if (writing) return
    if (buffered === '' || closed) return onFlushed?.()
    // Mostly into the same memory, as one write is under way at most.
    const fits = buffered.length * MAX_BYTES_PER_CHAR <= page.length
    const bytes = fits ? page.subarray(0, page.write(buffered)) : Buffer.from(buffered)
    buffered = ''
    writing = true
    sink(bytes, (isClosed) => {
      writing = false
      closed = isClosed
      if (closed) buffered = ''
      else if (dropped > 0 && buffered.length < MAX_CHARS / 2) {
        const lines = dropped
        dropped = 0
        onDropped(lines)
      }
      if (buffered.length >= FLUSH_CHARS || onFlushed) flush()
    })
  }

  /** Of a process that exits without `close`: a pipe whose reader is slow would block all of it. */
  function flushSync(): void {
    try {
      if (buffered !== '') writeSync(fd, isPipe ? buffered.slice(-MAX_EXIT_CHARS) : buffered)
    } catch {
      // The reader has no room, or has left.
    }
  }
  process.once('exit', flushSync)

  return {
    write(line: string): void {
      if (closed) return
      if (buffered.length > MAX_CHARS) {
        dropped++
        return
      }
      buffered += line
      if (buffered.length >= FLUSH_CHARS) flush()
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
