import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } from 'yaml'
import type { Document, Node, Scalar } from 'yaml'
import { isObject } from '../../runtime/json.ts'
import { describeYamlError, duplicateKey, writePath } from './issue.ts'
import type { Issue, LocatedIssue, Path } from './issue.ts'

/** The environment: values of the variables `${NAME}`. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Maximum nesting of brackets, including those in texts and comments; many thousands exhaust the
 * parser's memory.
 */
const MAX_DEPTH = 1000

/**
 * Reads one YAML document and substitutes the environment in each scalar, so that no value can
 * change the structure. Without an environment, variables are left as written. `value` is undefined
 * if the mistakes leave no mapping. `offsetOf` finds a path's value or key, or the innermost node
 * around it; `placeOf` gives the line and column of an offset, counted from 1.
 */
export function readSource(source: string, env?: Env) {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const placeOf = (offset: number): string => {
    const { line, col } = lineCounter.linePos(offset)
    return `${Math.max(line, 1)}:${Math.max(col, 1)}`
  }
  const refuse = (mistakes: readonly Issue[]) =>
    ({ value: undefined, mistakes, placeOf, offsetOf: () => 0 }) as const
  const refuseFile = (message: string) => refuse([{ path: [], message }])

  if (isTooDeep(text)) return refuseFile('the brackets of the file nest too deeply; remove some')
  const document = parseDocument(text, {
    // The core schema, even if the file requests another.
    schema: 'core',
    merge: true,
    stringKeys: true,
    // `inspect` finds duplicates; the parser compares each key with each other.
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
    lineCounter,
  })
  // Others often follow from the first.
  const [error] = [...document.errors, ...document.warnings]
  if (error !== undefined)
    return refuse([{ path: [], message: describeYamlError(error, text), offset: error.pos[0] }])
  const { invalid, unset } = inspect(document.contents, env, lineCounter)
  if (invalid.length > 0) return refuse(invalid)
  try {
    const value: unknown = document.toJS()
    const offsetOf = (path: Path, key?: boolean) => findOffset(document, path, key)
    if (isObject(value)) return { value, mistakes: unset, placeOf, offsetOf }
    const what = document.contents === null ? 'is empty' : 'must be a mapping'
    return refuseFile(`the file ${what}; "sluice init" writes one`)
  } catch (error) {
    return refuseFile(`the file cannot be read: ${(error as Error).message}`)
  }
}

/**
 * Sorts mistakes by position and keeps the first of each path, since the others follow from it.
 * `flagOf` returns a value's flag.
 */
export function locate(
  mistakes: readonly Issue[],
  file: string,
  { offsetOf, placeOf }: ReturnType<typeof readSource>,
  flagOf: (path: Path) => string | undefined = () => undefined,
): readonly LocatedIssue[] {
  const seen = new Set<string>()
  return mistakes
    .filter(({ path }) => path.length === 0 || seen.size < seen.add(writePath(path)).size)
    .map((issue) => ({ offset: offsetOf(issue.path, issue.key), ...issue }))
    .toSorted((a, b) => a.offset - b.offset)
    .map(({ path, message, offset }) => {
      const flag = flagOf(path)
      if (flag !== undefined) return { where: flag, path: '', message }
      const written = writePath(path, message.startsWith('unknown key'))
      return { where: `${file}:${placeOf(offset)}`, path: written, message }
    })
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
function findOffset(document: Document.Parsed, path: Path, atKey = false): number {
  let [key, value]: Entry = [undefined, document.contents]
  for (const step of path) {
    const next = entryOf(value, step, document)
    if (next === undefined) return (key ?? value)?.range?.[0] ?? 0
    ;[key, value] = next
  }
  const isBlank = value === null || (isScalar(value) && value.range?.[0] === value.range?.[1])
  return ((atKey || isBlank ? key : undefined) ?? value)?.range?.[0] ?? 0
}

type Entry = readonly [key: Node | undefined, value: Node | null]

/** Returns the key and value of a step, through aliases. A key that was merged in is not found. */
function entryOf(node: Node | null, step: string | number, document: Document.Parsed): Entry | undefined {
  const inner = isAlias(node) ? node.resolve(document) : node
  if (isSeq<Node>(inner)) {
    const item = inner.items[Number(step)]
    return item && [undefined, item]
  }
  if (!isMap<Scalar, Node | null>(inner)) return undefined
  const pair = inner.items.find(({ key }) => key.value === step)
  return pair && [pair.key, pair.value]
}

/**
 * Substitutes the environment in every scalar and finds mistakes, in one pass, because the document
 * may be long.
 */
function inspect(root: Node | null, env: Env | undefined, lines: LineCounter) {
  const invalid: Issue[] = []
  const unset: Issue[] = []
  /**
   * The names of the anchors whose values are complete: within its own value, an anchor has none.
   */
  const anchors = new Set<string>()
  const refuse = (path: Path, message: string, { range }: Node): void =>
    void invalid.push({ path, message, offset: range![0] })

  function visit(node: Node | null, path: Path): void {
    if (isAlias(node)) {
      const message = 'is an alias without an anchor before it; quote a value that begins with "*"'
      if (!anchors.has(node.source)) refuse(path, message, node)
    } else if (isMap<Scalar<string>, Node | null>(node)) {
      const offsets = new Map<string, number>()
      for (const { key, value } of node.items) {
        const inner = [...path, key.value]
        if (key.anchor !== undefined) anchors.add(key.anchor)
        // JavaScript treats the key specially, and zod's records skip it.
        if (key.value === '__proto__') refuse(inner, 'unknown key; remove it', key)
        const first = key.value === '<<' ? undefined : offsets.get(key.value)
        if (first === undefined) offsets.set(key.value, key.range![0])
        else refuse([], duplicateKey(key.value, lines.linePos(first).line), key)
        visit(value, inner)
      }
    } else if (isSeq<Node>(node)) node.items.forEach((item, i) => visit(item, [...path, i]))
    else if (isScalar(node) && typeof node.value === 'string' && env !== undefined) {
      node.value = substitute(node.value, env, (message) => unset.push({ path, message }))
    }
    if (node?.anchor !== undefined) anchors.add(node.anchor)
  }
  visit(root, [])
  return { invalid, unset }
}

const VARIABLE = /\$\$\{|\$\{([^}]*)(\}?)/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/**
 * Substitutes `${NAME}` and `${NAME:-default}`, where an empty variable counts as unset; `$${`
 * becomes `${`. Leaves mistakes as written.
 */
export function substitute(source: string, env: Env, report: (message: string) => void): string {
  return source.replace(VARIABLE, (all, inside: string | undefined, end: string) => {
    if (inside === undefined) return '${'
    const [, name, otherwise] = INSIDE.exec(inside) ?? []
    const value = name && (env[name] || otherwise)
    const isMalformed = name === undefined || end === '' || otherwise?.includes('${') === true
    if (isMalformed) report('is malformed; write ${NAME} or ${NAME:-default}, or $${ for "${"')
    else if (value === undefined) report(`needs the environment variable ${name}; set it, or a default`)
    else return value
    return all
  })
}
