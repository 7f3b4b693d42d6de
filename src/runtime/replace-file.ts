import { randomUUID } from 'node:crypto'
import { chmod, chown, rename, rm, writeFile } from 'node:fs/promises'

/** The owner of a file, and who may read and write it. */
interface Access {
  readonly mode: number
  readonly uid: number
  readonly gid: number
}

/**
 * Replaces a file at once, so that no reader sees a part of it. Only this user may read and write it,
 * unless `access` says who may.
 */
export async function replaceFile(file: string, bytes: Buffer, access?: Access): Promise<void> {
  // A random name: processes of several containers may have the same id.
  const temporary = `${file}.${randomUUID()}.tmp`
  try {
    await writeFile(temporary, bytes, { mode: 0o600, flag: 'wx', flush: true })
    if (access !== undefined) {
      await chown(temporary, access.uid, access.gid)
      await chmod(temporary, access.mode & 0o777)
    }
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw error
  }
}
