import { type ReadFile, stampOf } from '../config/file-stamp.ts'

/**
 * Creates the watch of the files of a configuration. `poll` compares them with what was read, and
 * calls `onChange` once a file differs and no file has changed since the poll before: a file that
 * is still being written may be valid, but lacks its end.
 */
export function createWatch(onChange: () => void) {
  /** The stamp of each file when it was last read, or when `onChange` was last called. */
  let known: ReadonlyMap<string, string> = new Map()
  let polled: ReadonlyMap<string, string> = new Map()
  let isPolling = false

  async function poll(): Promise<void> {
    if (isPolling) return
    isPolling = true
    const before = known
    const files = [...before.keys()]
    const stamps = await Promise.all(files.map(stampOf))
    isPolling = false
    // Other files were read meanwhile.
    if (known !== before) return
    const now = new Map(files.map((file, i) => [file, stamps[i]!]))
    const isStill = files.every((file) => now.get(file) === polled.get(file))
    const isChanged = files.some((file) => now.get(file) !== known.get(file))
    polled = now
    if (!isStill || !isChanged) return
    known = now
    onChange()
  }

  return {
    poll,
    /** Sets the files that were read. */
    set(files: readonly ReadFile[]): void {
      // A file may have been read twice: the first stamp shows each change since.
      known = new Map(files.toReversed().map(({ file, stamp }) => [file, stamp]))
    },
  }
}
