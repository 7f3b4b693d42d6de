import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } from 'yaml'
import type { Document, Node, Scalar } from 'yaml'
import { isObject } from '../../runtime/json.ts'
import { toError } from '../../runtime/to-error.ts'
import { ConfigError, describeYamlError, type Issue, type Path, writePath } from './issue.ts'

/** The environment: values of the variables `${NAME}`. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Maximum nesting of brackets, including those in texts and comments; many thousands exhaust the
 * parser's memory.
 */
const MAX_DEPTH = 1000

/**
 * Maximum nodes that the aliases of one anchor stand for: its uses times the aliases within it. The
 * default of 100 refuses files that use an anchor for each of 100 routes.
 */
const MAX_ALIAS_COUNT = 1_000_000

/**
 * Reads one YAML document with a mapping, and leaves variables of the environment as written.
 * Throws a ConfigError.
 */
export function readSource(source: string, file: string) {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const fail = (message: string, offset = 0) => new ConfigError(locate([{ path: [], message, offset }]))

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
      .map((issue) => ({ ...issue, offset: issue.offset ?? findOffset(document, issue) }))
      .toSorted((a, b) => a.offset - b.offset)
      .map(({ path, message, offset }) => {
        const flag = flagOf?.(path)
        if (flag !== undefined) return { where: flag, path: '', message }
        const { line, col } = lineCounter.linePos(offset)
        const where = `${file === '-' ? 'stdin' : file}:${Math.max(line, 1)}:${Math.max(col, 1)}`
        return { where, path: writePath(path, /^(?:unknown|duplicate) key/.test(message)), message }
      })
  }

  if (isTooDeep(text)) throw fail('the brackets of the file nest too deeply; remove some')
  const document = parseDocument(text, {
    // The core schema, even if the file requests another.
    schema: 'core',
    merge: true,
    stringKeys: true,
    // `mistakesIn` finds duplicates; the parser compares each key with each other.
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
    lineCounter,
  })
  // Others often follow from the first.
  const [error] = [...document.errors, ...document.warnings]
  if (error !== undefined) throw fail(describeYamlError(error, text), error.pos[0])
  const mistakes = mistakesIn(document.contents)
  if (mistakes.length > 0) throw new ConfigError(locate(mistakes))
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIAS_COUNT })
    if (isObject(value)) return { value, locate }
  } catch (error) {
    const { message } = toError(error)
    if (message.startsWith('Excessive alias count'))
      throw fail(
        `the file cannot be read: aliases within aliases stand for over ${MAX_ALIAS_COUNT} values; write some of them out`,
      )
    throw fail(`the file cannot be read: ${message}`)
  }
  if (document.contents === null) throw fail('the file is empty; "sluice init" writes one')
  throw fail('the file must be a mapping; "sluice init" writes one')
}

function isTooDeep(text: string): boolean {
  let depth = 0
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth = Math.max(0, depth + (bracket === '[' || bracket === '{' ? 1 : -1))
    if (depth > MAX_DEPTH) return true
  }
  return false
}

export function mapTexts<T>(value: T, replace: (text: string, path: Path) => string, path: Path = []): T {
  const map = (inner: unknown, step: string | number) => mapTexts(inner, replace, [...path, step])
  if (typeof value === 'string') return replace(value, path) as T
  if (Array.isArray(value)) return value.map(map) as T
  if (!isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, map(inner, key)])) as T
}

/**
 * Returns the offset of a path's value or key, or of the innermost node around it; within an alias,
 * that in its anchor.
 */
function findOffset(document: Document.Parsed, { path, key: atKey = false }: Issue): number {
  let key: Node | undefined
  let value: Node | null | undefined = document.contents
  for (const step of path) {
    const inner: unknown = isAlias(value) ? value.resolve(document) : value
    const map = isMap<Scalar, Node | null>(inner) ? inner.items : []
    // A key that was merged in is not found.
    const pair = map.find(({ key }) => key.value === step)
    const next = isSeq<Node>(inner) ? inner.items[Number(step)] : pair?.value
    if (next === undefined) return (key ?? value)?.range?.[0] ?? 0
    key = pair?.key
    value = next
  }
  const isBlank = value === null || (isScalar(value) && value.range?.[0] === value.range?.[1])
  return ((atKey || isBlank ? key : undefined) ?? value)?.range?.[0] ?? 0
}

/** Returns the mistakes that the parser accepts: duplicate keys, and aliases without an anchor. */
function mistakesIn(root: Node | null): readonly Issue[] {
  const mistakes: Issue[] = []
  /**
   * The names of the anchors whose values are complete: within its own value, an anchor has none.
   */
  const anchors = new Set<string>()
  const report = (path: Path, message: string, { range }: Node): void =>
    void mistakes.push({ path, message, offset: range![0] })

  function visit(node: Node | null, path: Path): void {
    if (isAlias(node)) {
      if (!anchors.has(node.source))
        report(path, 'is an alias without an anchor before it; quote a value that begins with "*"', node)
    } else if (isMap<Scalar<string>, Node | null>(node)) {
      const keys = new Set<string>()
      for (const { key, value } of node.items) {
        const inner = [...path, key.value]
        if (key.anchor !== undefined) anchors.add(key.anchor)
        // JavaScript treats the key specially, and zod's records skip it.
        if (key.value === '__proto__') report(inner, 'unknown key; remove it', key)
        if (keys.has(key.value) && key.value !== '<<')
          report(inner, 'duplicate key; remove one of the two', key)
        keys.add(key.value)
        visit(value, inner)
      }
    } else if (isSeq<Node>(node)) node.items.forEach((item, i) => visit(item, [...path, i]))
    if (node?.anchor !== undefined) anchors.add(node.anchor)
  }
  visit(root, [])
  return mistakes
}

const VARIABLE = /\$\$\{|\$\{([^}]*)(\}?)/g
/** Matches a whole value that shells, but not this file, would replace. */
const UNBRACED = /^\$[A-Za-z_][A-Za-z0-9_]*$/
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/**
 * Substitutes `${NAME}` and `${NAME:-default}`, where an empty variable counts as unset; `$${`
 * becomes `${`. Leaves mistakes as written, of which one is `$NAME` as the whole value: a password of
 * this form is read from a variable or a file.
 */
export function substitute(source: string, env: Env, report?: (message: string) => void): string {
  if (UNBRACED.test(source)) report?.('is a variable without braces; write ${NAME}')
  return source.replace(VARIABLE, (all, inside: string | undefined, end: string) => {
    if (inside === undefined) return '${'
    const [, name, otherwise] = INSIDE.exec(inside) ?? []
    const value = name && (env[name] || otherwise)
    const isMalformed = name === undefined || end === '' || otherwise?.includes('${') === true
    if (isMalformed) report?.('is malformed; write ${NAME} or ${NAME:-default}, or $${ for "${"')
    else if (value !== undefined) return value
    else report?.(`needs the environment variable ${name}; set it, or a default`)
    return all
  })
}
