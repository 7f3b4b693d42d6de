import type { z } from 'zod'
import type { Problem } from './problem.ts'
import type { Path } from './locate.ts'
import type { Mistake, Place, Source } from './source.ts'
import { unknownKey } from './wording.ts'

type Issue = z.core.$ZodIssue

const WORD = /^[A-Za-z_][A-Za-z0-9_-]*$/

/** What the schema found, in words: one mistake for each unknown key, and of a union the case that was meant. */
export function mistakesOf(issue: Issue, at: Path = []): readonly Mistake[] {
  const path = [...at, ...issue.path] as Path
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      path: [...path, key],
      message: unknownKey(key, issue.message),
      key: true,
      // It may be a key and its secret, without the colon.
      hidden: !WORD.test(key),
    }))
  }
  if (issue.code === 'invalid_key') return [{ path, message: issue.issues[0]!.message, key: true }]
  if (issue.code === 'invalid_union') {
    const meant = issue.errors.filter((issues) => !issues.some(isOfAnotherKind))
    if (meant.length === 1) return meant[0]!.flatMap((inner) => mistakesOf(inner, path))
  }
  return [{ path, message: issue.message }]
}

/** Where a text may be wanted that is none; of a union, in every case of it. */
export function wantedTexts(issue: Issue, at: Path = []): readonly Path[] {
  const path = [...at, ...issue.path] as Path
  if (issue.code === 'invalid_type') return issue.expected === 'string' ? [path] : []
  if (issue.code !== 'invalid_union') return []
  return [path, ...issue.errors.flat().flatMap((inner) => wantedTexts(inner, path))]
}

function isOfAnotherKind({ code, path }: Issue): boolean {
  return path.length === 0 && (code === 'invalid_type' || code === 'invalid_value')
}

/** Where mistakes and warnings stand: the file, what is in it, and the flag that gave the value at a path. */
export interface Report {
  readonly label: string
  readonly source: Source
  readonly flagOf: (path: Path) => string | undefined
}

/** All mistakes in the order of the file; of several at one place the first, as the others follow from it. */
export function problemsOf(
  mistakes: readonly Mistake[],
  { label, source, flagOf }: Report,
): readonly Problem[] {
  const problems: (Problem & Place)[] = []
  const seen = new Set<string>()
  for (const { path, message, key, place, hidden } of mistakes) {
    const full = writePath(path)
    if (path.length > 0 && seen.has(full)) continue
    seen.add(full)
    const written = hidden === true ? writePath(path.slice(0, -1)) : full
    const flag = flagOf(path)
    const { line, column } = place ?? source.placeOf(path, key)
    // What was written there may be the value of another flag, such as a password.
    const unquoted = message.replace(/, not ".*"$/s, '')
    if (flag !== undefined) problems.push({ where: flag, path: '', message: unquoted, line: 0, column: 0 })
    else problems.push({ where: `${label}:${line}:${column}`, path: written, message, line, column })
  }
  return problems
    .toSorted((a, b) => a.line - b.line || a.column - b.column)
    .map(({ where, path, message }) => ({ where, path, message }))
}

/** Such as `routes[2].upstream`. */
function writePath(path: Path): string {
  let written = ''
  for (const step of path) {
    if (typeof step === 'number') written += `[${step}]`
    else if (WORD.test(step)) written += written === '' ? step : `.${step}`
    else written += `[${JSON.stringify(step)}]`
  }
  return written
}
