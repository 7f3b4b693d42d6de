import { readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type ReadFile, stampBeforeRead } from '../file-stamp.ts'
import { toError } from '../../runtime/to-error.ts'

/** Returns the path of an included file as shown: relative like that of the main file. */
export const shownPath = (path: string, mainFile: string): string =>
  mainFile === '-' ? path : join(dirname(mainFile), path)

/** Codes of errors for a path that does not exist. */
const ABSENT: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ENOTDIR'])

/** The files that patterns match, and the folders that were listed for that. */
export interface Found {
  /** Relative to the folder of the patterns; sorted, each once. */
  readonly files: readonly string[]
  /** Their stamps change when a file is added or removed. */
  readonly folders: readonly ReadFile[]
  /** The patterns that match no file. */
  readonly unmatched: readonly string[]
  /** The folders that exist, but could not be read, and why. */
  readonly unread: readonly { readonly folder: string; readonly error: unknown }[]
}

/**
 * Finds the files that patterns such as `teams/*.yaml` match, below a folder. As in a shell, `*` and
 * `?` match no slash, and no dot at the beginning of a name: a mounted ConfigMap has its data in
 * such folders, and links to them.
 */
export function findFiles(directory: string, globs: readonly string[]): Found {
  const folders = new Map<string, ReadFile>()
  const files = new Set<string>()
  const unmatched: string[] = []
  const unread: { folder: string; error: unknown }[] = []

  /** Returns what `read` returns of a path; `otherwise` if it does not exist, or cannot be read. */
  function readOr<T>(path: string, otherwise: T, read: (path: string) => T): T {
    try {
      return read(path)
    } catch (error) {
      if (!ABSENT.has(toError(error).code)) unread.push({ folder: path, error })
      return otherwise
    }
  }
  function* match(below: string, [step, ...rest]: readonly string[]): Generator<string> {
    const isLast = rest.length === 0
    const folder = join(directory, below)
    if (step === undefined) return
    if (!folders.has(folder)) folders.set(folder, stampBeforeRead(folder))
    for (const name of /[*?]/.test(step)
      ? readOr<readonly string[]>(folder, [], (path) => readdirSync(path)).filter(matcherOf(step))
      : [step]) {
      const path = join(below, name)
      if (isLast) yield path
      else if (readOr(join(directory, path), false, isFolder)) yield* match(path, rest)
    }
  }
  for (const glob of globs) {
    const found = [...match('', glob.split('/'))]
    const isPattern = /[*?]/.test(glob)
    if (isPattern && found.length === 0) unmatched.push(glob)
    for (const path of found) files.add(path)
  }
  return { files: [...files].toSorted(), folders: [...folders.values()], unmatched, unread }
}

/** Returns the test of names that a step such as `*.yaml` matches. */
function matcherOf(step: string): (name: string) => boolean {
  const source = step
    .replaceAll(/[.+^${}()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(/\*+/g, '.*')
    .replaceAll('?', '.')
  const pattern = new RegExp(`^${source}$`, 'su')
  return (name) => pattern.test(name) && (step.startsWith('.') || !name.startsWith('.'))
}

const isFolder = (path: string): boolean => statSync(path).isDirectory()
