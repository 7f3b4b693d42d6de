import { type ReadFile, stampOf } from '../config/file-stamp.ts'

/** Polls that find files changing, after which they are read all the same. */
export const MAX_CHANGING = 25

/**
 * Creates the watch of the files of a configuration. `poll` compares them with what was read, and
 * calls `onChange` once a file differs and no file has changed since the poll before: a file that
 * is still being written may be valid, but lacks its end. Files that go on changing are read after
 * `MAX_CHANGING` polls, since one of them could otherwise keep back a change of the others.
 */
export function createWatch(onChange: () => void) {
  /** The stamp of each file when it was last read, or when `onChange` was last called. */
  let known: ReadonlyMap<string, string> = new Map()
  let polled: ReadonlyMap<string, string> = new Map()
  /** Polls in a row that found files changing. */
  let changing = 0
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
    changing = isStill ? 0 : changing + 1
    if (!isChanged || (!isStill && changing < MAX_CHANGING)) return
    changing = 0
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
