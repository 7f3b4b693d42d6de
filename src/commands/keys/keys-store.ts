import { type Stats } from 'node:fs'
import { open, realpath, rm, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ACCESS_BY_OTHERS, describeAccess } from '../../config/keys/access.ts'
import { KeyText } from '../../config/keys/edit-keys.ts'
import { readKeys } from '../../config/keys/keys-file.ts'
import { readText } from '../../config/text.ts'
import { replaceFile } from '../../runtime/replace-file.ts'
import { toError } from '../../runtime/to-error.ts'

/** Milliseconds for which a command waits for another one; with 100,000 keys, each takes a second. */
const LOCK_MS = 5000
const LOCK_RETRY_MS = 20

/** Reads the keys' file; an absent one is empty. Throws a `ConfigError` for mistakes. */
export async function readKeyText(file: string): Promise<KeyText> {
  if ((await statOf(file)) === undefined) return KeyText.read('', file)
  const text = await readText(file)
  readKeys(text, file)
  return KeyText.read(text, file)
}

/**
 * Changes the keys' file at once, one command at a time. `change` returns the new text, or undefined to
 * leave it. Refuses a file that others may read or change.
 */
export async function changeKeys(
  name: string,
  change: (keys: KeyText) => KeyText | undefined,
): Promise<void> {
  const file = await realpath(name).catch(() => resolve(name))
  const lock = `${file}.lock`
  await lockFile(lock)
  try {
    const found = await statOf(file)
    if (found !== undefined) assertPrivate(found, file)
    const next = change(await readKeyText(file))?.toString()
    if (next === undefined) return
    readKeys(next, file)
    await replaceFile(file, Buffer.from(next), found)
  } finally {
    await rm(lock, { force: true })
  }
}

/** Creates the lock. While another command has it, waits up to `LOCK_MS`. */
async function lockFile(lock: string): Promise<void> {
  const endsAt = performance.now() + LOCK_MS
  while (!(await createLock(lock))) {
    if (performance.now() > endsAt)
      throw new Error(`Another command changes the keys. If none runs, remove ${lock}.`)
    await sleep(LOCK_RETRY_MS)
  }
}

/** Creates the lock; resolves with false if it exists. */
async function createLock(lock: string): Promise<boolean> {
  try {
    await (await open(lock, 'wx')).close()
    return true
  } catch (error) {
    if (toError(error).code === 'EEXIST') return false
    throw error
  }
}

function assertPrivate({ mode }: Stats, file: string): void {
  if ((mode & ACCESS_BY_OTHERS) !== 0) throw new Error(describeAccess(file, mode))
}

/** Returns the sentence about others who may read or change the file; undefined if none may. */
export async function describeOpenFile(file: string): Promise<string | undefined> {
  const mode = (await statOf(file))?.mode ?? 0
  return (mode & ACCESS_BY_OTHERS) === 0 ? undefined : describeAccess(file, mode)
}

/** Returns undefined if there is no such file. Throws for a folder, a device and a named pipe, whose reading might never end. */
async function statOf(file: string): Promise<Stats | undefined> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (found?.isFile() === false) throw new Error(`${file} is not a regular file. Give the path of one.`)
  return found
}
