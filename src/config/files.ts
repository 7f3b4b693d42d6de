import { realpath, stat } from 'node:fs/promises'
import { dirname, resolve, sep } from 'node:path'
import { readKeySet } from '../authenticate/jose/key-set.ts'
import { parseObject } from '../runtime/json.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import { isAbsent, readRegularFile, reason } from './text.ts'
import type { Issue, Path } from './yaml/issue.ts'

/** Returns the mistake in the text of a file; undefined if there is none. */
export type Check = (text: string) => string | undefined | Promise<string | undefined>

/** The files that settings name, relative to a folder. */
export type SettingsFiles = ReturnType<typeof openSettingsFiles>

/**
 * Opens the files that settings name, relative to `directory`. With `offline`, files and folders that
 * are not here are notes, no mistakes.
 */
export function openSettingsFiles(directory: string, offline: boolean) {
  const stamps: ReadFile[] = []
  const mistakes: Issue[] = []
  const notes: Issue[] = []

  function report(path: Path, message: string): undefined {
    mistakes.push({ path, message })
  }

  /**
   * Reads a file; resolves with undefined if there is no name, or the file has a mistake. Links must
   * not lead out of `folder`, if it is given. `creates` says what creates the file, if a command does.
   */
  async function read(
    path: Path,
    name: string | undefined,
    check: Check,
    { folder, creates = '' }: { readonly folder?: string | undefined; readonly creates?: string } = {},
  ): Promise<string | undefined> {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    stamps.push(stampBeforeRead(file))
    const refuse = (mistake: string): undefined => report(path, `names ${file}, which ${mistake}`)
    let text: string
    try {
      const target = folder === undefined ? file : await realpath(file)
      if (folder !== undefined && !target.startsWith(`${await realpath(folder)}${sep}`))
        return refuse(`is a link to a file outside ${folder}; copy that file there`)
      text = (await readRegularFile(target)).toString()
    } catch (error) {
      if (!isAbsent(error)) return refuse(reason(error))
      if (!offline) return refuse(reason(error) + creates)
      notes.push({ path, message: `names ${file}, which ${reason(error)}` })
      return undefined
    }
    const mistake = await check(text)
    return mistake === undefined ? text : refuse(mistake)
  }

  /** Returns the path of a file that the gateway writes, and that need not exist; its folder must. */
  async function pathToWrite(path: Path, name: string | undefined): Promise<string | undefined> {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    const folder = dirname(file)
    if (await isMissing(folder)) {
      const message = `needs the folder ${folder}, which does not exist; create it`
      ;(offline ? notes : mistakes).push({ path, message })
    } else if (await isFolder(file)) {
      report(path, `names ${file}, which is a folder; write the path of a file`)
    }
    return file
  }

  return {
    read,
    pathToWrite,
    report,
    pathOf: (name: string): string => resolve(directory, name),
    /** The files that were read. */
    stamps: stamps as readonly ReadFile[],
    /** The mistakes that were found in the files, and those that were reported. */
    mistakes: mistakes as readonly Issue[],
    notes: notes as readonly Issue[],
  }
}

const isFolder = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )

/**
 * Returns true unless a path is a folder. A folder that this user may not see is not missing: a
 * service's folder is often closed to the operator who runs `check`.
 */
const isMissing = (folder: string): Promise<boolean> =>
  stat(folder).then(
    (found) => !found.isDirectory(),
    ({ code }: NodeJS.ErrnoException) => code !== 'EACCES',
  )

/** Returns the mistake in a file with the keys of an issuer. */
export async function keySetMistake(text: string): Promise<string | undefined> {
  if (await hasKey(parseObject(text))) return undefined
  return "has no key that verifies tokens; write the issuer's JWK Set there, or its URL here"
}

/**
 * Returns true if a key of a JWK Set can verify signatures; of the algorithm, if it is asymmetric.
 */
export async function hasKey(jwks: unknown, algorithm = 'none'): Promise<boolean> {
  const set = await readKeySet(jwks).catch(() => undefined)
  const keys = /^(?:none|HS)/.test(algorithm) ? set?.keys : set?.find(algorithm, undefined)
  return keys !== undefined && keys.length > 0
}
