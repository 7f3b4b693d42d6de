import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'

/** Takes lines and writes them to a file descriptor, many at a time. */
export interface Lines {
  write(line: string): void
  /** Resolves when what was taken is written, or a second has passed. */
  close(): Promise<void>
}

/** Written at once when so much has gathered, and else so often. */
const GATHERED = 64 * 1024
/** UTF-8 of what UTF-16 says in one unit. */
const MOST_BYTES_A_CHAR = 3
const PAGE_BYTES = (GATHERED + 16 * 1024) * MOST_BYTES_A_CHAR
const EVERY_MS = 100
/** What may wait for a slow reader; lines beyond are lost rather than kept. */
const MAX_WAITING = 8 * 1024 * 1024
const CLOSE_MS = 1000

/** Writes some bytes; `done` is told when the next may come, and whether there is any point in them. */
type Sink = (bytes: Buffer, done: (gone: boolean) => void) => void

/**
 * Gathers lines as text and encodes them once: per line that costs a fraction of a stream. A reader that went away ends the
 * writing, a full disk loses lines; neither ends the process, nor keeps it from ending. `onLost` is told how many lines found no
 * place, once there is place again.
 */
export function createLines(fd: number, onLost: (lines: number) => void = () => {}): Lines {
  const { isPipe, sink } = sinkOf(fd)
  const page = Buffer.allocUnsafeSlow(PAGE_BYTES)
  let waiting = ''
  let lost = 0
  let busy = false
  let gone = false
  let done: (() => void) | undefined

  const timer = setInterval(flush, EVERY_MS).unref()

  function flush(): void {
    if (busy) return
    if (waiting === '' || gone) {
      done?.()
      return
    }
    // Mostly into the same memory again: no more than one writing is under way.
    const bytes =
      waiting.length * MOST_BYTES_A_CHAR <= page.length
        ? page.subarray(0, page.write(waiting))
        : Buffer.from(waiting)
    waiting = ''
    busy = true
    sink(bytes, (isGone) => {
      busy = false
      gone = isGone
      if (gone) waiting = ''
      else if (lost > 0 && waiting.length < MAX_WAITING / 2) {
        const lines = lost
        lost = 0
        onLost(lines)
      }
      if (waiting.length >= GATHERED || done) flush()
    })
  }

  /** The last words of a process that ends without `close`; a pipe whose reader is slow would keep it from ending. */
  function flushNow(): void {
    try {
      // Bytes under way have mostly left already; where the reader is slow, these find no room either.
      if (waiting !== '') writeSync(fd, isPipe ? waiting.slice(-MAX_LAST_WORDS) : waiting)
    } catch {
      // Nobody is left to tell.
    }
  }
  process.once('exit', flushNow)

  return {
    write(line) {
      if (gone) return
      if (waiting.length > MAX_WAITING) {
        lost++
        return
      }
      waiting += line
      if (waiting.length >= GATHERED) flush()
    },
    close: () =>
      new Promise((resolve) => {
        clearInterval(timer)
        const late = setTimeout(finish, CLOSE_MS)
        function finish(): void {
          clearTimeout(late)
          process.removeListener('exit', flushNow)
          resolve()
        }
        done = finish
        flush()
      }),
  }
}

const MAX_LAST_WORDS = 32 * 1024

/** A pipe is written without a thread that its reader could hold for ever; a file needs one. */
function sinkOf(fd: number): { readonly isPipe: boolean; readonly sink: Sink } {
  const kind = fstatSync(fd)
  if (!kind.isFIFO() && !kind.isSocket()) return { isPipe: false, sink: fileSink(fd) }
  const pipe = new Socket({ fd, readable: false, writable: true })
  pipe.unref()
  let gone = false
  pipe.on('error', () => (gone = true))
  return {
    isPipe: true,
    sink(bytes, done) {
      if (gone) done(true)
      else pipe.write(bytes, (error) => done(error != null))
    },
  }
}

function fileSink(fd: number): Sink {
  return function sink(bytes, done) {
    write(fd, bytes, (error, written) => {
      // What a full disk does not take is lost; later lines may find room.
      if (error || written === bytes.length) done(error?.code === 'EPIPE' || error?.code === 'EBADF')
      else sink(bytes.subarray(written), done)
    })
  }
}
