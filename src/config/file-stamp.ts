import { type BigIntStats, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'

/** A file that was read, and its stamp from before that. */
export interface ReadFile {
  readonly file: string
  readonly stamp: string
}

const NO_FILE = 'no file'

/** The times, the size and the inode, which also change behind symbolic links (ConfigMaps, Secrets). */
const format = ({ ctimeNs, mtimeNs, size, ino }: BigIntStats): string => [ctimeNs, mtimeNs, size, ino].join()

/** Resolves with a text that differs after each change of a file. */
export const stampOf = (file: string): Promise<string> =>
  stat(file, { bigint: true }).then(format, () => NO_FILE)

/** Returns the stamp of a file that is read next. */
export function stampBeforeRead(file: string): ReadFile {
  try {
    return { file, stamp: format(statSync(file, { bigint: true })) }
  } catch {
    return { file, stamp: NO_FILE }
  }
}
