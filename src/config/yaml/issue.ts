import { closest, distance } from 'fastest-levenshtein'
import type { YAMLError } from 'yaml'
import type { z } from 'zod'
import { foreignWord } from './foreign-words.ts'

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

/** Matches line feeds and other control characters, which names of files may have. */
const CONTROLS = /\p{Cc}/gu

/** Formats a mistake as `sluice.yaml:3:9: admin.port: message`, always in one line. */
export const problemLine = ({ where, path, message }: LocatedIssue): string =>
  [where, path, message]
    .filter(Boolean)
    .join(': ')
    .replaceAll(CONTROLS, (control) => JSON.stringify(control).slice(1, -1))

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
    // If there are several mappings: the one that may have all the keys.
    const fitting = intended.filter((issues) => !issues.some(isOfKeys))
    const [one, ...others] = intended.length === 1 ? intended : fitting
    if (one !== undefined && others.length === 0) return one.flatMap((inner) => mistakesOf(inner, path))
  }
  return [{ path, message, key: issue.code === 'custom' && issue.params?.['key'] === true }]
}

/** True for an issue about the keys of the mapping itself. */
const isOfKeys = ({ code, path }: z.core.$ZodIssue): boolean =>
  (code === 'unrecognized_keys' && path.length === 0) || (code === 'invalid_key' && path.length === 1)

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
  if (INVISIBLE.test(key)) return `unknown key; ${REPLACE_INVISIBLE}`
  // What follows the colon may be a secret.
  const [before = ''] = key.split(':', 1)
  if (keys.includes(before)) return `unknown key; write a blank after "${before}:"`
  const meant = foreignWord(key, keys)
  if (meant !== undefined) return `unknown key; ${meant}`
  const similar = nearest(key, keys)
  if (similar !== undefined) return `unknown key; did you mean "${similar}"?`
  // Unquoted in a flow mapping, a comma ends the value, and the rest of it is a key.
  if (/[\s/]/.test(key)) return 'unknown key; write "key: value", or quote the value before it'
  return `unknown key; write ${keys.length === 1 ? `"${defined}"` : `one of ${keys.join(', ')}`}`
}

/** Formats `a`, `a or b`, or `a, b or c`. */
export const oneOf = (words: readonly string[]): string =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`

/** Matches blanks and characters of no width that YAML takes for letters: they come with text of web pages and chats. */
const INVISIBLE = /[\u00a0\u2000-\u200d\u202f\u2060\u3000\ufeff]/
const REPLACE_INVISIBLE = 'YAML takes a blank in it for a letter, such as U+00A0; write an ordinary one'
/** Matches such a character where a blank belongs: before a key, or after its colon. */
const INVISIBLE_BLANK = new RegExp(`(?:^[ -]*|:)(?=${INVISIBLE.source})`, 'm')

const YAML_ERRORS: Readonly<Record<string, string>> = {
  BAD_ALIAS: 'an alias (*) or an anchor (&) needs a name; quote a value that begins with "*" or "&"',
  BAD_DIRECTIVE: 'a line that begins with "%" has a meaning of its own in YAML; remove it',
  BAD_DQ_ESCAPE: 'in double quotes, "\\" begins an escape, and this is none; use single quotes',
  MULTILINE_IMPLICIT_KEY: 'a line without ": "; write "key: value", with a blank after the colon',
  MULTIPLE_DOCS: 'a second document starts here; remove the "---"',
  NON_STRING_KEY: 'contains a key that is not a word; write a plain word',
  RESOURCE_EXHAUSTION: 'the nesting is too deep; remove some levels',
  TAB_AS_INDENT: 'a tab indents this line; YAML accepts only spaces',
  TAG_RESOLVE_FAILED: 'a tag (!name) has no meaning here; remove it',
}

/** Returns an error of the YAML parser as an issue, at its cause if that is an invisible character. */
export function yamlIssue(error: YAMLError, text: string): Issue {
  const found = INVISIBLE_BLANK.exec(text)
  if (found === null) return { path: [], message: describeYamlError(error, text), offset: error.pos[0] }
  const message = 'YAML takes this blank for a letter, such as U+00A0; write an ordinary one'
  return { path: [], message, offset: found.index + found[0].length }
}

/** Rewrites an error of the YAML parser without the text after the colon, which may be a secret. */
function describeYamlError({ code, message, pos }: YAMLError, text: string): string {
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
