import { type BigIntStats, readdirSync, statSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'

/** A file that was read, or a folder that was listed, and its stamp from before that. */
export interface ReadFile {
  readonly file: string
  readonly stamp: string
}

const NO_FILE = 'no file'

/** The times, the size and the inode, which also change behind symbolic links (ConfigMaps, Secrets). */
const format = ({ ctimeNs, mtimeNs, size, ino }: BigIntStats): string => [ctimeNs, mtimeNs, size, ino].join()

/** The names in a folder, without hidden ones: a file that is written in place changes only its own stamp. */
const formatNames = (names: readonly string[]): string =>
  names
    .filter((name) => !name.startsWith('.'))
    .toSorted()
    .join('/')

/** Resolves with a text that differs after each change of a file, or of the names in a folder. */
export async function stampOf(path: string): Promise<string> {
  try {
    const stats = await stat(path, { bigint: true })
    return stats.isDirectory() ? formatNames(await readdir(path)) : format(stats)
  } catch {
    return NO_FILE
  }
}

/** Returns the stamp of a file or folder that is read next. */
export function stampBeforeRead(file: string): ReadFile {
  try {
    const stats = statSync(file, { bigint: true })
    return { file, stamp: stats.isDirectory() ? formatNames(readdirSync(file)) : format(stats) }
  } catch {
    return { file, stamp: NO_FILE }
  }
}
