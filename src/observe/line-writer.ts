import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

/** Lines are written when a page is full, or every `FLUSH_MS` milliseconds. */
const PAGE_BYTES = 64 * 1024
const FLUSH_MS = 100
/** Maximum UTF-8 bytes of a UTF-16 unit. */
const MAX_BYTES_PER_CHAR = 3
/** Maximum bytes that wait for a slow reader; further lines are dropped. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024
const CLOSE_MS = 1000

type Notify<Value> = (value: Value) => void

/**
 * Writes lines to a file descriptor in pages. A reader that hangs does not block the exit of the
 * process; a closed reader ends the writing. `onDropped` is called with the number of dropped lines
 * once there is room. Each line is encoded into a page at once: strings would survive several
 * garbage collections. sonic-boom: +1.5 us a line, and its threads block the exit.
 */
export function createLineWriter(fd: number, onDropped: Notify<number>, onFailed: Notify<Error>) {
  const kind = fstatSync(fd)
  const isPipe = kind.isFIFO() || kind.isSocket()
  const output = isPipe ? openPipe(fd).on('error', onFailed) : openFile(fd, onFailed)
  /** Pages and long lines that are not written yet, the one that is being written first. */
  const waiting: Buffer[] = []
  /**
   * A written page, to be used again: new ones would count as garbage outside of the heap, and
   * cause full collections.
   */
  let spare: Buffer | undefined
  let page: Buffer = Buffer.allocUnsafeSlow(PAGE_BYTES)
  let used = 0
  let dropped = 0

  function send(bytes: Buffer, onWritten = (): void => {}): void {
    waiting.push(bytes)
    output.write(bytes, () => {
      waiting.shift()
      onWritten()
      if (dropped === 0 || output.writableLength >= MAX_WAITING_BYTES / 2) return
      const lines = dropped
      dropped = 0
      onDropped(lines)
    })
  }

  function flush(): void {
    if (used === 0) return
    const full = page
    send(full.subarray(0, used), () => (spare = full))
    page = spare ?? Buffer.allocUnsafeSlow(PAGE_BYTES)
    spare = undefined
    used = 0
  }
  const timer = setInterval(() => {
    if (output.writableLength === 0) flush()
  }, FLUSH_MS).unref()

  function flushAtExit(): void {
    // While pages wait for a pipe, it is full.
    const rest = isPipe ? [] : waiting.slice(1)
    try {
      writeSync(fd, Buffer.concat([...rest, page.subarray(0, used)]))
    } catch {
      // The pipe, which never blocks, is full or closed.
    }
  }
  process.once('exit', flushAtExit)

  return {
    write(line: string): void {
      if (output.destroyed) return
      if (output.writableLength > MAX_WAITING_BYTES) {
        dropped++
        return
      }
      const maxBytes = line.length * MAX_BYTES_PER_CHAR
      if (used + maxBytes > PAGE_BYTES) flush()
      if (maxBytes > PAGE_BYTES) send(Buffer.from(line))
      else used += page.write(line, used)
    },
    /** Resolves when all lines are written, or after `CLOSE_MS`. */
    async close(): Promise<void> {
      clearInterval(timer)
      flush()
      const flushed = new Promise((resolve) => output.write('', resolve))
      await Promise.race([flushed, sleep(CLOSE_MS)])
      process.removeListener('exit', flushAtExit)
    },
  }
}

/** Writes to a pipe without a thread, which a reader that hangs would block forever. */
const openPipe = (fd: number) => new Socket({ fd, readable: false, writable: true }).unref()

/** Writes to a file, in a thread. Bytes for which a full disk has no room are lost; later lines may have room. */
function openFile(fd: number, onFailed: Notify<Error>): Writable {
  function writeAll(bytes: Buffer, done: () => void): void {
    write(fd, bytes, (error, written) => {
      if (error) onFailed(error)
      if (error || written === bytes.length) done()
      else writeAll(bytes.subarray(written), done)
    })
  }
  return new Writable({ write: (bytes: Buffer, _encoding, done) => writeAll(bytes, done) })
}
