import { isObject } from '../../runtime/json.ts'
import { toError } from '../../runtime/to-error.ts'
import { findOffset, MAX_ALIAS_COUNT, mistakesIn, parseYaml, valueOf } from './document.ts'
import { createLines } from './lines.ts'
import { readParts } from './parts.ts'
import { ConfigError, type Issue, type Path, writePath, yamlIssue } from './issue.ts'

/** The environment: values of the variables `${NAME}`. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Maximum nesting of brackets, including those in texts and comments; many thousands exhaust the
 * parser's memory.
 */
const MAX_DEPTH = 1000

/**
 * Reads one YAML document with a mapping, and leaves variables of the environment as written.
 * Throws a ConfigError.
 */
export const readSource = (source: string, file: string) =>
  readDocument(source, file, isObject, { form: 'a mapping', remedy: '"sluice init" writes one' })

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value)

/**
 * Reads one YAML document with a list. Throws a ConfigError, which shows no other keys than `words`;
 * `remedy` says how to get a valid file.
 */
export const readListSource = (source: string, file: string, remedy: string, words: ReadonlySet<string>) =>
  readDocument(source, file, isList, { form: 'a list', remedy, words })

/** Reads one YAML document of a form. Throws a ConfigError. */
function readDocument<T>(
  source: string,
  file: string,
  isOfForm: (value: unknown) => value is T,
  {
    form,
    remedy,
    words,
  }: { readonly form: string; readonly remedy: string; readonly words?: ReadonlySet<string> },
) {
  const text = source.replace(/^\uFEFF/, '')
  const lines = createLines(text)
  const fail = (message: string, offset = 0) => new ConfigError(locate([{ path: [], message, offset }]))
  /** Returns the offset of an issue; undefined until the text is parsed. */
  let offsetOf: ((issue: Issue) => number) | undefined

  /**
   * Sorts mistakes by position and keeps the first of each path, since the others follow from it.
   * `flagOf` returns a value's flag.
   */
  function locate(mistakes: readonly Issue[], flagOf?: (path: Path) => string | undefined) {
    const seen = new Set<string>()
    function isFirstOfPath({ path }: Issue): boolean {
      const name = writePath(path)
      const isFirst = name === '' || !seen.has(name)
      seen.add(name)
      return isFirst
    }
    return mistakes
      .filter(isFirstOfPath)
      .map((issue) => ({ ...issue, offset: issue.offset ?? offsetOf?.(issue) ?? 0 }))
      .toSorted((a, b) => a.offset - b.offset)
      .map(({ path, message, offset }) => {
        const flag = flagOf?.(path)
        if (flag !== undefined) return { where: flag, path: '', message }
        const where = `${file === '-' ? 'stdin' : file}:${lines.position(offset)}`
        const shown = path.filter(
          (step) => typeof step === 'number' || words === undefined || words.has(step),
        )
        return { where, path: writePath(shown, /^(?:unknown|duplicate) key/.test(message)), message }
      })
  }

  if (isTooDeep(text)) throw fail('the brackets of the file nest too deeply; remove some')
  const parts = readParts(text)
  if (parts !== undefined && isOfForm(parts.value)) {
    offsetOf = parts.offsetOf
    return { value: parts.value, locate }
  }
  const document = parseYaml(text)
  offsetOf = (issue) => findOffset(document, issue)
  // Others often follow from the first.
  const [error] = [...document.errors, ...document.warnings]
  if (error !== undefined) throw new ConfigError(locate([yamlIssue(error, text)]))
  const mistakes = mistakesIn(document.contents)
  if (mistakes.length > 0) throw new ConfigError(locate(mistakes))
  try {
    const value = valueOf(document)
    if (isOfForm(value)) return { value, locate }
  } catch (error) {
    const { message } = toError(error)
    if (message.startsWith('Excessive alias count'))
      throw fail(
        `the file cannot be read: aliases within aliases stand for over ${MAX_ALIAS_COUNT} values; write some of them out`,
      )
    throw fail(`the file cannot be read: ${message}`)
  }
  if (document.contents === null) throw fail(`the file is empty; ${remedy}`)
  throw fail(`the file must be ${form}; ${remedy}`)
}

function isTooDeep(text: string): boolean {
  let depth = 0
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth = Math.max(0, depth + (bracket === '[' || bracket === '{' ? 1 : -1))
    if (depth > MAX_DEPTH) return true
  }
  return false
}

/** Replaces the texts in a value. What has no other text is returned itself: 100,000 clients are not copied. */
export function mapTexts<T>(value: T, replace: (text: string, path: Path) => string, path: Path = []): T {
  const map = (inner: unknown, step: string | number) => mapTexts(inner, replace, [...path, step])
  if (typeof value === 'string') return replace(value, path) as T
  if (Array.isArray(value)) {
    const mapped = value.map(map)
    return (mapped.every((item, i) => item === value[i]) ? value : mapped) as T
  }
  if (!isObject(value)) return value
  const mapped = Object.entries(value).map(([key, inner]) => [key, map(inner, key)] as const)
  return (mapped.every(([key, inner]) => inner === value[key]) ? value : Object.fromEntries(mapped)) as T
}

const VARIABLE = /\$\$\{|\$\{([^}]*)(\}?)/g
/** Matches a whole value that shells, but not this file, would replace. */
const UNBRACED = /^\$[A-Za-z_][A-Za-z0-9_]*$/
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/**
 * Substitutes `${NAME}` and `${NAME:-default}`, where an empty variable counts as unset; `$${`
 * becomes `${`. Leaves mistakes as written. One of them is `$NAME` as the whole value: a password of
 * this form is read from a variable or a file. `report` also gets the name of a variable that is not
 * set.
 */
export function substitute(
  source: string,
  env: Env,
  report?: (message: string, unset?: string) => void,
): string {
  if (UNBRACED.test(source)) report?.('is a variable without braces; write ${NAME}')
  return source.replace(VARIABLE, (all, inside: string | undefined, end: string) => {
    if (inside === undefined) return '${'
    const [, name, otherwise] = INSIDE.exec(inside) ?? []
    const value = name && (env[name] || otherwise)
    const isMalformed = name === undefined || end === '' || otherwise?.includes('${') === true
    if (isMalformed) report?.('is malformed; write ${NAME} or ${NAME:-default}, or $${ for "${"')
    else if (value !== undefined) return value
    else report?.(`needs the environment variable ${name}; set it, or a default`, name)
    return all
  })
}
