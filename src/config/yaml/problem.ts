import type { z } from 'zod'
import { unknownKey } from './wording.ts'

/** From the document to a value: keys and positions in lists. */
export type Path = readonly (string | number)[]

/** A line and column, both counted from 1. */
export interface Place {
  readonly line: number
  readonly column: number
}

/** A mistake in a file. With `key`, its place is that of the path's key and not of its value. */
export interface Mistake {
  readonly path: Path
  readonly message: string
  readonly key?: boolean | undefined
  readonly place?: Place
}

/** One mistake in a configuration, or a warning, as the operator reads it. */
export interface Problem {
  /** `file:line:column`, or the flag that gave the value. */
  readonly where: string
  /** Such as `routes[2].upstream`; empty for the file as a whole. */
  readonly path: string
  /** What is wrong and what to write instead. */
  readonly message: string
}

/** Every mistake of a configuration, in the order of the file; its message has a line for each. */
export class ConfigError extends Error {
  readonly problems: readonly Problem[]

  constructor(problems: readonly Problem[]) {
    super(problems.map((problem) => problemLine(problem)).join('\n'))
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/** A problem in a line: `sluice.yaml:3:9: admin.port: what is wrong`. */
export function problemLine({ where, path, message }: Problem): string {
  return [where, path, message].filter(Boolean).join(': ')
}

type Issue = z.core.$ZodIssue

/** Words an issue of the schema: one mistake for each unknown key, and of a union the case that was meant. */
export function mistakesOf(issue: Issue, at: Path = []): readonly Mistake[] {
  const path = [...at, ...issue.path] as Path
  const { message } = issue
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => ({ path: [...path, key], message: unknownKey(key, message), key: true }))
  if (issue.code === 'invalid_key') return [{ path, message: issue.issues[0]!.message, key: true }]
  if (issue.code === 'invalid_union') {
    // A case of another type has an issue at the value itself.
    const meant = issue.errors.filter(
      (issues) =>
        !issues.some(({ code, path }) => path.length === 0 && /^invalid_(?:type|value)$/.test(code)),
    )
    if (meant.length === 1) return meant[0]!.flatMap((inner) => mistakesOf(inner, path))
  }
  return [{ path, message, key: issue.code === 'custom' && issue.params?.['key'] === true }]
}

/** Where mistakes and warnings stand: the file, the places in it, and the flag that gave the value at a path. */
export interface Places {
  readonly label: string
  readonly placeOf: (path: Path, key?: boolean) => Place
  readonly flagOf: (path: Path) => string | undefined
}

/** Lists mistakes in the order of the file, one of each path, as others there follow from the first. */
export function problemsOf(
  mistakes: readonly Mistake[],
  { label, placeOf, flagOf }: Places,
): readonly Problem[] {
  const seen = new Set<string>()
  return mistakes
    .filter(({ path }) => path.length === 0 || seen.size < seen.add(writePath(path)).size)
    .map(({ path, key, place, message }) => ({ path, message, ...(place ?? placeOf(path, key)) }))
    .toSorted((a, b) => a.line - b.line || a.column - b.column)
    .map(({ path, message, line, column }) => {
      const flag = flagOf(path)
      if (flag !== undefined) return { where: flag, path: '', message }
      const written = writePath(path, message.startsWith('unknown key'))
      return { where: `${label}:${line}:${column}`, path: written, message }
    })
}

/** Such as `routes[2].upstream`; with `plain`, without steps that are no words: they may be a key and its secret, without the colon. */
function writePath(path: Path, plain = false): string {
  let written = ''
  for (const step of path) {
    if (typeof step === 'number') written += `[${step}]`
    else if (/^[A-Za-z_][A-Za-z0-9_-]*$/.test(step)) written += written === '' ? step : `.${step}`
    else if (!plain) written += `[${JSON.stringify(step)}]`
  }
  return written
}
