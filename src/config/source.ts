import {
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  parseDocument,
  visit,
  type Document,
  type Node,
  type Pair,
  type YAMLError,
} from 'yaml'
import { substitute, type Env } from './substitute.ts'

/** From the document to a value: keys and positions in lists. */
export type Path = readonly (string | number)[]

/** A line and column, both counted from 1. */
export interface Place {
  readonly line: number
  readonly column: number
}

/** A mistake in the text. `key` points at the key of the path, not at its value. */
export interface Mistake {
  readonly path: Path
  readonly message: string
  readonly key?: boolean
  readonly place?: Place
}

/** What a YAML text says. */
export interface Source {
  readonly value: unknown
  readonly mistakes: readonly Mistake[]
  /** The text that the environment gave for the value at a path, where it was read as a number or boolean. */
  textAt(path: Path): string | undefined
  /** Where the path's value or key stands, or the nearest thing around it. */
  placeOf(path: Path, key?: boolean): Place
}

/** Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure. */
export function readSource(source: string, env: Env): Source {
  const lines = new LineCounter()
  const placeAt = (offset: number): Place => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const text = source.replace(/^\uFEFF/, '')
  const document = parse(text, lines)
  if (typeof document === 'string') return nothing(document)
  const broken = [...document.errors, ...document.warnings]
  if (broken.length > 0) {
    const mistakes = broken.map((error) => ({
      path: [],
      message: wordError(error, text),
      place: placeAt(error.pos[0]),
    }))
    return {
      ...nothing(''),
      mistakes: mistakes.filter((one, i) => i === 0 || one.place.line !== mistakes[i - 1]!.place.line),
    }
  }
  if (document.contents === null)
    return nothing('the file is empty; see config/sluice.yaml for what to write')

  const texts = new Map<Node, string>()
  const mistakes: Mistake[] = []
  visit(document, {
    Pair(_, pair, parents) {
      const problem = keyProblem(pair)
      if (problem === undefined) return undefined
      const at = (pair.key as Node | null)?.range?.[0] ?? 0
      mistakes.push({ path: pathOf(parents), message: problem, place: placeAt(at) })
      return visit.SKIP
    },
    Scalar(key, node, parents) {
      if (key === 'key' || typeof node.value !== 'string') return
      const given = substitute(node.value, env)
      if (given === undefined) return
      if ('problem' in given) {
        const path = pathOf([...parents, node])
        mistakes.push({ path, message: given.problem, place: placeAt(node.range![0]) })
      } else {
        node.value = given.value
        if (given.value !== given.text) texts.set(node, given.text)
      }
    },
  })
  const find = (path: Path) => locate(document, path)
  return {
    value: plainValue(document, mistakes),
    mistakes,
    textAt(path) {
      const { value, whole } = find(path)
      return whole && value ? texts.get(value) : undefined
    },
    placeOf(path, key = false) {
      const found = find(path)
      const node = key ? (found.key ?? found.value) : (found.value ?? found.key)
      return placeAt(node?.range?.[0] ?? 0)
    },
  }
}

function nothing(message: string): Source {
  const first = { line: 1, column: 1 }
  return {
    value: undefined,
    mistakes: message === '' ? [] : [{ path: [], message, place: first }],
    textAt: () => undefined,
    placeOf: () => first,
  }
}

function parse(text: string, lines: LineCounter): Document.Parsed | string {
  try {
    return parseDocument(text, { lineCounter: lines, merge: true, prettyErrors: false, logLevel: 'error' })
  } catch (error) {
    return error instanceof RangeError
      ? 'the file is nested too deeply'
      : `the file is no YAML: ${(error as Error).message}`
  }
}

function plainValue(document: Document.Parsed, mistakes: Mistake[]): unknown {
  try {
    return unshared(document.toJS({ maxAliasCount: 100 }), [])
  } catch (error) {
    const message = /alias count/i.test((error as Error).message)
      ? 'the aliases (*name) multiply the file beyond bounds; write the values out'
      : `the file cannot be read: ${(error as Error).message}`
    mistakes.push({ path: [], message, place: { line: 1, column: 1 } })
    return undefined
  }
}

/** A copy in which no two places are one object, as aliases make them. */
function unshared(value: unknown, around: readonly unknown[]): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (around.includes(value)) throw new Error('an alias (*name) stands within what it stands for')
  const inner = [...around, value]
  if (Array.isArray(value)) return value.map((item) => unshared(item, inner))
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unshared(item, inner)]))
}

const PLAINER: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'a second document starts here; a configuration is one document, so take the "---" out',
  DUPLICATE_KEY: 'this key stands twice in its mapping; take one of the two out',
  TAB_AS_INDENT: 'a tab indents this line; YAML takes spaces alone',
}

function wordError(error: YAMLError, text: string): string {
  const known = PLAINER[error.code]
  if (known !== undefined) return known
  const start = text.lastIndexOf('\n', error.pos[0] - 1) + 1
  const line = text.slice(start).split('\n', 1)[0]!
  const hint = /^[^#]*[{,[][^"'#]*\$\{/.test(line) ? '; within { } and [ ], put quotes around "${NAME}"' : ''
  return `${error.message.split('\n', 1)[0]}${hint}`
}

function keyProblem({ key }: Pair): string | undefined {
  if (key !== null && !isScalar(key)) return 'a key must be a plain word'
  const name = key?.value ?? ''
  return name === '__proto__' || name === '' ? `${JSON.stringify(name)} is no key; take it out` : undefined
}

/** The path that leads through `nodes`, of which the first is the document. */
function pathOf(nodes: readonly unknown[]): Path {
  const path: (string | number)[] = []
  nodes.forEach((node, i) => {
    const next = nodes[i + 1]
    if (isPair(node)) path.push(isScalar(node.key) ? String(node.key.value) : '')
    else if (isSeq(node) && next !== undefined) path.push(node.items.indexOf(next))
  })
  return path
}

interface Found {
  readonly key: Node | undefined
  readonly value: Node | undefined
  /** Did the path lead to its end? */
  readonly whole: boolean
}

/** The key and value at the end of the path, or as far as it leads. */
function locate(document: Document.Parsed, path: Path): Found {
  let key: Node | undefined
  let value: Node | undefined = document.contents ?? undefined
  for (const step of path) {
    const inner = resolved(value, document)
    let next: { key: Node | undefined; value: Node | undefined } | undefined
    if (isSeq(inner)) next = { key: undefined, value: inner.items[Number(step)] as Node | undefined }
    else next = pairOf(inner, String(step), document)
    if (next === undefined || (next.key ?? next.value) === undefined)
      return { key, value: key ?? value, whole: false }
    key = next.key
    value = next.value
  }
  return { key, value: value ?? key, whole: true }
}

function pairOf(
  node: unknown,
  name: string,
  document: Document.Parsed,
): { key: Node | undefined; value: Node | undefined } | undefined {
  if (isSeq(node)) {
    for (const item of node.items) {
      const found = pairOf(resolved(item, document), name, document)
      if (found) return found
    }
  }
  if (!isMap(node)) return undefined
  const named = (key: string) =>
    node.items.find((pair) => isScalar(pair.key) && String(pair.key.value) === key)
  const pair = named(name)
  if (pair) return { key: pair.key as Node, value: (pair.value as Node | null) ?? undefined }
  const merged = named('<<')
  return merged && pairOf(resolved(merged.value, document), name, document)
}

function resolved(node: unknown, document: Document.Parsed): unknown {
  return isAlias(node) ? node.resolve(document) : node
}
