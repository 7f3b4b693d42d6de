import { closest, distance } from 'fastest-levenshtein'
import type { YAMLError } from 'yaml'
import type { z } from 'zod'

/** The keys and list indexes that lead from the document to a value. */
export type Path = readonly (string | number)[]

export interface Issue {
  readonly path: Path
  readonly message: string
  /** Locates the mistake at the key of the path, not at its value. */
  readonly key?: boolean | undefined
  /** Offset of the mistake in the text, in place of that of the path. */
  readonly offset?: number
}

/** Returns the issue of the value at a path. */
export const issueAt = (path: Path, message: string): Issue => ({ path, message })

/** Returns an issue that is located at the key of a path, not at its value. */
export const issueAtKey = (path: Path, message: string): Issue => ({ path, message, key: true })

/** A mistake in a configuration, or a warning, as the operator reads it. */
export interface LocatedIssue {
  /** `file:line:column`, or the flag that set the value. */
  readonly where: string
  /** The written path, such as `routes[2].upstream`; empty for the whole file. */
  readonly path: string
  readonly message: string
}

/** All mistakes of a configuration, in the order of the file. The message has one line for each. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly problems: readonly LocatedIssue[]

  constructor(problems: readonly LocatedIssue[]) {
    super(problems.map(problemLine).join('\n'))
    this.problems = problems
  }
}

/** Formats a mistake as `sluice.yaml:3:9: admin.port: message`. */
export const problemLine = ({ where, path, message }: LocatedIssue): string =>
  [where, path, message].filter(Boolean).join(': ')

/**
 * Converts an issue of zod: one mistake for each unknown key, and for a union those of the intended
 * member.
 */
export function mistakesOf(issue: z.core.$ZodIssue, parent: Path = []): readonly Issue[] {
  const path = [...parent, ...issue.path] as Path
  const { message } = issue
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => ({ path: [...path, key], message: unknownKey(key, message), key: true }))
  if (issue.code === 'invalid_key') return [{ path, message: issue.issues[0]!.message, key: true }]
  if (issue.code === 'invalid_union') {
    // A member of another type has an issue at the value itself.
    const intended = issue.errors.filter((issues) =>
      issues.every(({ code, path }) => path.length > 0 || !/^invalid_(?:type|value)$/.test(code)),
    )
    if (intended.length === 1) return intended[0]!.flatMap((inner) => mistakesOf(inner, path))
  }
  return [{ path, message, key: issue.code === 'custom' && issue.params?.['key'] === true }]
}

/**
 * Formats a path, such as `routes[2].upstream`. `wordsOnly` omits other keys: an unknown one may be
 * a key and its secret without a colon.
 */
export function writePath(path: Path, wordsOnly = false): string {
  const steps = path.map((step) => {
    if (typeof step === 'number') return `[${step}]`
    if (/^[\w-]+$/.test(step)) return `.${step}`
    return wordsOnly ? '' : `[${JSON.stringify(step)}]`
  })
  return steps.join('').replace(/^\./, '')
}

/**
 * Returns the `error` option of zod for a value that must be `what`. The value is not repeated: it
 * may hold a secret.
 */
export function mustBe(what: string, explain?: (input: unknown) => string | false | undefined) {
  return {
    error: ({ input }: { readonly input?: unknown }): string => {
      if (input === undefined) return `is missing; write ${what}`
      if (input === null) return `is empty; write ${what}`
      return explain?.(input) || `must be ${what}`
    },
  }
}

/**
 * Returns the `error` option of zod for a mapping. The message of unknown keys is the defined keys,
 * for `mistakesOf`.
 */
export function mustBeMapping(keys: readonly string[]) {
  const { error } = mustBe(`a mapping (keys: ${keys.join(', ')})`)
  return {
    error: (raised: z.core.$ZodRawIssue) =>
      raised.code === 'unrecognized_keys' ? keys.join(' ') : error(raised),
  }
}

function unknownKey(key: string, defined: string): string {
  const keys = defined.split(' ')
  const similar = nearest(key, keys)
  if (similar !== undefined) return `unknown key; did you mean "${similar}"?`
  return `unknown key; write ${keys.length === 1 ? `"${defined}"` : `one of ${keys.join(', ')}`}`
}

/** Formats `a`, `a or b`, or `a, b or c`. */
export const oneOf = (words: readonly string[]): string =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`

const YAML_ERRORS: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'a second document starts here; remove the "---"',
  NON_STRING_KEY: 'contains a key that is not a word; write a plain word',
  RESOURCE_EXHAUSTION: 'the nesting is too deep; remove some levels',
  TAB_AS_INDENT: 'a tab indents this line; YAML accepts only spaces',
  TAG_RESOLVE_FAILED: 'a tag (!name) has no meaning here; remove it',
}

/** Rewrites an error of the YAML parser without the text after the colon, which may be a secret. */
export function describeYamlError({ code, message, pos }: YAMLError, text: string): string {
  const [line] = text.slice(text.lastIndexOf('\n', pos[0] - 1) + 1).split('\n', 1) as [string]
  const description = YAML_ERRORS[code]
  if (description !== undefined) return description
  const isUnquoted = /^[^#]*[{,[][^"'#]*\$\{/.test(line.slice(0, 1000))
  const hint = isUnquoted ? '; within { } and [ ], put quotes around "${NAME}"' : ''
  return `${message.split(/\n|: /, 1)[0]}${hint}`
}

const fold = (text: string): string => text.toLowerCase().replaceAll(/[-_ ]/g, '')

/**
 * Returns the most similar of `candidates`: at most a third of it differs from `word`, or only case
 * and dashes.
 */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  if (candidates.length === 0) return undefined
  const same = candidates.find((name) => fold(name) === fold(word))
  const similar = closest(word, candidates)
  const isSimilar = distance(word, similar) <= Math.min(3, Math.ceil(word.length / 3))
  return same ?? (isSimilar ? similar : undefined)
}
