import { appendFile } from 'node:fs/promises'

/** Maximum lines that wait for a disk that hangs; further ones are reported as failures. */
const MAX_WAITING = 1000

/**
 * Appends lines to a file that only this user may read, in their order. The file is opened for each
 * line, so that a rotated one is replaced without a signal. Calls `failed` for each line that is
 * not written.
 */
export function createAuditFile(file: string, failed: (error: Error) => void) {
  let writing = Promise.resolve()
  let waiting = 0
  return {
    write(line: string): void {
      if (waiting >= MAX_WAITING) return failed(new Error(`more than ${MAX_WAITING} lines wait for the disk`))
      waiting++
      writing = writing
        .then(() => appendFile(file, line, { mode: 0o600 }))
        .catch(failed)
        .finally(() => waiting--)
    },
    /** Resolves when all lines are written. */
    close: (): Promise<void> => writing,
  }
}
