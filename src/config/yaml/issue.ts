import type { YAMLError } from 'yaml'
import type { z } from 'zod'

/** From the document to a value: keys and positions in lists. */
export type Path = readonly (string | number)[]

/** A line and column, both counted from 1. */
export interface Position {
  readonly line: number
  readonly column: number
}

/** A mistake in a file. With `key`, its place is that of the path's key and not of its value. */
export interface Issue {
  readonly path: Path
  readonly message: string
  readonly key?: boolean | undefined
  readonly place?: Position
}

/** One mistake in a configuration, or a warning, as the operator reads it. */
export interface LocatedIssue {
  /** `file:line:column`, or the flag that gave the value. */
  readonly where: string
  /** Such as `routes[2].upstream`; empty for the file as a whole. */
  readonly path: string
  /** What is wrong and what to write instead. */
  readonly message: string
}

/** Every mistake of a configuration, in the order of the file; its message has a line for each. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly problems: readonly LocatedIssue[]

  constructor(problems: readonly LocatedIssue[]) {
    super(problems.map(problemLine).join('\n'))
    this.problems = problems
  }
}

/** A problem in a line: `sluice.yaml:3:9: admin.port: what is wrong`. */
export function problemLine({ where, path, message }: LocatedIssue): string {
  return [where, path, message].filter(Boolean).join(': ')
}

/** Words an issue of the schema: one mistake for each unknown key, and of a union the case that was meant. */
export function mistakesOf(issue: z.core.$ZodIssue, at: Path = []): readonly Issue[] {
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

/** Lists mistakes in the order of the file, one of each path, as others there follow from the first; `flagOf` names the flag that gave a value. */
export function problemsOf(
  mistakes: readonly Issue[],
  label: string,
  placeOf: (path: Path, key?: boolean) => Position,
  flagOf: (path: Path) => string | undefined,
): readonly LocatedIssue[] {
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

/** The `error` option of a value that must be `what`, unless `explain` knows more. The value is never repeated: it may hold a secret. */
export function mustBe(what: string, explain?: (input: unknown) => string | undefined) {
  return {
    error: ({ input }: { readonly input?: unknown }): string => {
      if (input === undefined) return `is missing; write ${what}`
      if (input === null) return `is empty; write ${what}`
      return explain?.(input) ?? `must be ${what}`
    },
  }
}

/** The `error` option of a mapping: how its other mistakes are worded, and which keys it knows. */
export function mustBeMapping(
  keys: readonly string[],
  what = `a mapping with ${keys.length === 1 ? `"${keys[0]}"` : `keys of ${keys.join(', ')}`}`,
) {
  const { error } = mustBe(what)
  return {
    error: (raised: z.core.$ZodRawIssue) =>
      raised.code === 'unrecognized_keys' ? keys.join(' ') : error(raised),
  }
}

/** Words an unknown key, with `known` the keys separated by spaces that `mustBeMapping` left as the message. */
export function unknownKey(key: string, known: string): string {
  const keys = known.split(' ')
  const meant = nearest(key, keys)
  if (meant !== undefined) return `unknown key; did you mean "${meant}"?`
  return `unknown key; write ${keys.length === 1 ? `"${keys[0]}"` : `one of ${keys.join(', ')}`}`
}

/** Words a reference to an upstream or a limit that is not defined. */
export function undefinedName(kind: string, name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  const others = known.length === 0 ? '' : ` or write ${oneOf(known)}`
  const hint = meant === undefined ? `define it under "${kind}s"${others}` : `did you mean "${meant}"?`
  return `there is no such ${kind}; ${hint}`
}

/** `a`, `a or b`, `a, b or c`. */
export function oneOf(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`
}

const PLAINER: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'a second document starts here; a configuration is one document, so take the "---" out',
  NON_STRING_KEY: 'holds a key that is not a word; write a plain one',
  RESOURCE_EXHAUSTION: 'this nests too deeply; take some out',
  TAB_AS_INDENT: 'a tab indents this line; YAML takes spaces alone',
  TAG_RESOLVE_FAILED: 'a tag (!name) means nothing here; take it out',
}

/** Words what the YAML parser found, without the text behind the colon, which may be a secret. */
export function describeYamlError({ code, message, pos }: YAMLError, text: string): string {
  const [line] = text.slice(text.lastIndexOf('\n', pos[0] - 1) + 1).split('\n', 1) as [string]
  if (code === 'NON_STRING_KEY' && line.includes('{{'))
    return 'is a mapping within a mapping; write "${NAME}" for the environment variable NAME'
  const plainer = PLAINER[code]
  if (plainer !== undefined) return plainer
  const isUnquoted = /^[^#]*[{,[][^"'#]*\$\{/.test(line.slice(0, 1000))
  const hint = isUnquoted ? '; within { } and [ ], put quotes around "${NAME}"' : ''
  return `${message.split(/\n|: /, 1)[0]}${hint}`
}

/** The one of `known` that `word` was probably meant to be: at most a third of it differs, or only case and dashes. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const most = Math.min(3, Math.ceil(word.length / 3))
  const edited = known.map((one) => ({ one, by: plain(one) === plain(word) ? 0 : edits(word, one) }))
  return edited.filter(({ by }) => by <= most).toSorted((a, b) => a.by - b.by)[0]?.one
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll(/[-_ ]/g, '')
}

/** The edits between two words: insert, delete or replace (Levenshtein). */
function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, replaced))
    }
    row = next
  }
  return row[b.length]!
}
