import type { JsonObject } from '../runtime/json.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import type { Unknown } from './offline.ts'
import { isSecret } from './schema.ts'
import { readSecret, secretFile } from './text.ts'
import type { Issue, Path } from './yaml/issue.ts'
import { type Env, mapTexts, substitute } from './yaml/source.ts'

/** Matches what no editor shows around a text: white space, line breaks, byte order marks, characters of no width. */
const PADDED = /^[\s\u200b-\u200d\u2060]|[\s\u200b-\u200d\u2060]$/
const PADDED_SECRET = 'begins or ends with a blank, a line break or a byte order mark; remove it'
/** Matches a text in quotes, as `docker run --env-file` leaves them. */
const QUOTED = /^(["']).*\1$/s
const QUOTED_SECRET = 'has quotes around it, which are part of it; remove them'

interface Given {
  readonly env: Env
  /** The folder that names of files are relative to. */
  readonly directory: string
  /** True for a value that a flag has set: it has no variables, and names files in the working directory. */
  isOfFlag(path: Path): boolean
}

/**
 * Replaces the variables of the environment in the texts of the main file, and `file:/path` by the
 * secret in that file. `unknown` are the texts whose variable or file is not here: they are left as
 * written.
 */
export function resolveTexts(file: JsonObject, { env, directory, isOfFlag }: Given) {
  const mistakes: Issue[] = []
  const padded: Issue[] = []
  const unknown: Unknown[] = []
  const secretFiles: ReadFile[] = []

  function readSecretAt(path: Path, name: string): string | undefined {
    secretFiles.push(stampBeforeRead(name))
    return readSecret(name, (message, isAbsent) => {
      if (isAbsent) unknown.push({ path, message, source: name, complete: (standIn) => standIn })
      else mistakes.push({ path, message })
    })
  }

  const value = mapTexts(file, (written, path) => {
    const text = isOfFlag(path) ? written : substituteAt(path, written, env, mistakes, unknown)
    const name = isSecret(path) ? secretFile(text, isOfFlag(path) ? process.cwd() : directory) : undefined
    const isUnknown = unknown.at(-1)?.path === path
    if (isUnknown) return text
    const final = (name && readSecretAt(path, name)) ?? text
    if (isSecret(path) && PADDED.test(final)) padded.push({ path, message: PADDED_SECRET })
    else if (isSecret(path) && QUOTED.test(final)) padded.push({ path, message: QUOTED_SECRET })
    return final
  })
  return { value, mistakes, padded, unknown, secretFiles }
}

/** Substitutes the variables of a text. Adds its mistakes, or that it is unknown, to those lists. */
export function substituteAt(
  path: Path,
  written: string,
  env: Env,
  mistakes: Issue[],
  unknown: Unknown[],
): string {
  const unset: string[] = []
  const text = substitute(written, env, (message, variable) => {
    if (variable === undefined) mistakes.push({ path, message })
    else unset.push(variable)
  })
  if (unset.length === 0) return text
  const [variable] = unset
  unknown.push({
    path,
    source: unset.join(),
    message: `needs the environment variable ${variable}; set it, or a default`,
    complete: (standIn) =>
      written.startsWith('file:')
        ? standIn
        : substitute(written, { ...env, ...Object.fromEntries(unset.map((name) => [name, standIn])) }),
  })
  return text
}
