import { readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type ReadFile, stampBeforeRead } from '../file-stamp.ts'

/** Returns the path of an included file as shown: relative like that of the main file. */
export const shownPath = (path: string, mainFile: string): string =>
  mainFile === '-' ? path : join(dirname(mainFile), path)

/** The files that patterns match, and the folders that were listed for that. */
export interface Found {
  /** Relative to the folder of the patterns; sorted, each once. */
  readonly files: readonly string[]
  /** Their stamps change when a file is added or removed. */
  readonly folders: readonly ReadFile[]
  /** The patterns that match no file. */
  readonly unmatched: readonly string[]
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

  function* match(below: string, [step, ...rest]: readonly string[]): Generator<string> {
    const isLast = rest.length === 0
    const folder = join(directory, below)
    if (step === undefined) return
    if (!folders.has(folder)) folders.set(folder, stampBeforeRead(folder))
    for (const name of /[*?]/.test(step) ? namesIn(folder).filter(matcherOf(step)) : [step]) {
      const path = join(below, name)
      if (isLast) yield path
      else if (isFolder(join(directory, path))) yield* match(path, rest)
    }
  }
  for (const glob of globs) {
    const found = [...match('', glob.split('/'))].filter((path) => !isFolder(join(directory, path)))
    const isPattern = /[*?]/.test(glob)
    if (isPattern && found.length === 0) unmatched.push(glob)
    for (const path of found) files.add(path)
  }
  return { files: [...files].toSorted(), folders: [...folders.values()], unmatched }
}

/** Returns the test of names that a step such as `*.yaml` matches. */
function matcherOf(step: string): (name: string) => boolean {
  const source = step
    .replaceAll(/[.+^${}()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(/\*+/g, '.*')
    .replaceAll('?', '.')
  const pattern = new RegExp(`^${source}$`, 'u')
  return (name) => pattern.test(name) && (step.startsWith('.') || !name.startsWith('.'))
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
