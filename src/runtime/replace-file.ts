import { randomUUID } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'

/** Replaces a file at once, so that no reader sees a part of it. Only this user may read and write it. */
export async function replaceFile(file: string, bytes: Buffer): Promise<void> {
  // A random name: processes of several containers may have the same id.
  const temporary = `${file}.${randomUUID()}.tmp`
  try {
    await writeFile(temporary, bytes, { mode: 0o600, flag: 'wx', flush: true })
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw error
  }
}
