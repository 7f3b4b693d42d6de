import { write, writeSync } from 'node:fs'

/** Takes lines and writes them to a file descriptor, many at a time. */
export interface Lines {
  write(line: string): void
  /** Resolves when what was taken is written, or a second has passed. */
  close(): Promise<void>
}

/** Written at once when so much has gathered, and else so often. */
const GATHERED = 64 * 1024
const EVERY_MS = 100
/** What may wait for a slow reader; lines beyond are lost rather than kept. */
const MAX_WAITING = 8 * 1024 * 1024
const RETRY_MS = 20
const CLOSE_MS = 1000

/**
 * Gathers lines as text and encodes them once: per line that costs a fraction of a stream. A reader that went away ends the
 * writing, not the process.
 */
export function createLines(fd: number): Lines {
  let waiting = ''
  let writing: Buffer | undefined
  let gone = false
  let done: (() => void) | undefined

  const timer = setInterval(flush, EVERY_MS).unref()

  function flush(): void {
    if (writing !== undefined) return
    if (waiting === '') {
      done?.()
      return
    }
    writing = Buffer.from(waiting)
    waiting = ''
    send()
  }

  function send(): void {
    write(fd, writing!, (error, written) => {
      if (error?.code === 'EAGAIN') {
        setTimeout(send, RETRY_MS)
        return
      }
      if (error) {
        gone = true
        waiting = ''
        writing = undefined
        done?.()
        return
      }
      const rest = writing!.subarray(written)
      writing = rest.length > 0 ? rest : undefined
      if (writing) send()
      else if (waiting.length >= GATHERED || done) flush()
    })
  }

  /** The last words of a process that ends without `close`. */
  function flushNow(): void {
    try {
      if (writing === undefined && waiting !== '') writeSync(fd, waiting)
    } catch {
      // Nobody is left to tell.
    }
    waiting = ''
  }
  process.once('exit', flushNow)

  return {
    write(line) {
      if (gone || waiting.length > MAX_WAITING) return
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
