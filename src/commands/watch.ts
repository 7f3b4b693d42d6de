import { unwatchFile, watchFile } from 'node:fs'

/** How often each file is looked at. */
const WATCH_MS = 1000

/** Files whose changes are told. */
export interface Watch {
  /** Watches these, and no others any more. */
  follow(files: readonly string[]): void
}

/** Looks at files by their times and inodes, which also sees the symbolic links of a mounted ConfigMap or Secret change. */
export function createWatch(changed: () => void): Watch {
  const watched = new Set<string>()
  return {
    follow(files) {
      for (const file of watched) {
        if (files.includes(file)) continue
        unwatchFile(file, changed)
        watched.delete(file)
      }
      for (const file of files) {
        if (watched.has(file)) continue
        watched.add(file)
        watchFile(file, { interval: WATCH_MS }, changed)
      }
    },
  }
}
