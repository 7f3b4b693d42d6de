import { isAlias, isMap, isScalar, isSeq, LineCounter } from 'yaml'
import type { Document, Node, Scalar, YAMLMap } from 'yaml'
import { locate, nameOf, type Path } from './locate.ts'
import { parseDocument, TooDeep } from './parse.ts'
import { substitute, type Env } from './substitute.ts'
import { wordError, wordThrown } from './yaml-wording.ts'

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
  /** Is the key not to be repeated? */
  readonly hidden?: boolean
}

/** What a YAML text says. */
export interface Source {
  /** Undefined where the mistakes leave no value to look at. */
  readonly value: unknown
  readonly mistakes: readonly Mistake[]
  /** What is not wrong, but probably not meant either. */
  readonly warnings: readonly Mistake[]
  /** The text that the environment gave for the value at a path, where it was read as a number or boolean. */
  textAt(path: Path): string | undefined
  /** Where the path's value or key stands, or the innermost thing around it. */
  placeOf(path: Path, key?: boolean): Place
}

/** Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure. */
export function readSource(source: string, env: Env): Source {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const placeAt = (offset = 0): Place => {
    const { line, col } = lineCounter.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  let document: Document.Parsed
  try {
    document = parseDocument(text, lineCounter)
  } catch (error) {
    if (!(error instanceof TooDeep)) {
      return unreadable([{ path: [], message: wordThrown(error), place: placeAt() }])
    }
    const place = { line: placeAt(error.offset).line, column: 1 }
    return unreadable([{ path: [], message: 'the brackets nest too deeply; take some out', place }])
  }
  const broken = [...document.errors, ...document.warnings].map((error) => ({
    path: [],
    message: wordError(error, text),
    place: placeAt(error.pos[0]),
  }))
  if (broken.length > 0) {
    return unreadable(broken.filter(({ place }, i) => place.line !== broken[i - 1]?.place.line))
  }
  if (document.contents === null) {
    return unreadable([
      { path: [], message: 'the file is empty; config/sluice.yaml shows what to write', place: placeAt() },
    ])
  }

  const { shape, repeated, unset, literal, texts, hasAliases } = inspect(document, env, placeAt)
  if (shape.length > 0) return unreadable(shape)
  let value: unknown
  try {
    value = document.toJS({ maxAliasCount: 100 })
    if (hasAliases) value = unshared(value, [])
  } catch (error) {
    return unreadable([...unset, { path: [], message: wordThrown(error), place: placeAt() }])
  }
  return {
    value,
    mistakes: [...repeated, ...unset],
    warnings: literal,
    textAt(path) {
      const { value, whole } = locate(document, path)
      return whole && value ? texts.get(value) : undefined
    },
    placeOf(path, key = false) {
      const found = locate(document, path)
      const isBlank = isScalar(found.value) && found.value.range?.[0] === found.value.range?.[1]
      return placeAt((key || isBlank ? (found.key ?? found.value) : (found.value ?? found.key))?.range?.[0])
    },
  }
}

type PlaceAt = (offset?: number) => Place

function unreadable(mistakes: readonly Mistake[]): Source {
  return {
    value: undefined,
    mistakes,
    warnings: [],
    textAt: () => undefined,
    placeOf: () => ({ line: 1, column: 1 }),
  }
}

/** What a walk through a document found. */
interface Inspected {
  /** Keys that are no words, and aliases that stand for nothing. */
  readonly shape: readonly Mistake[]
  /** Keys that stand twice in their mapping. */
  readonly repeated: readonly Mistake[]
  /** What is wrong with the variables that scalars name. */
  readonly unset: readonly Mistake[]
  /** Scalars that other programs would take for variables. */
  readonly literal: readonly Mistake[]
  /** What the environment gave for scalars that were read as numbers or booleans. */
  readonly texts: ReadonlyMap<Node, string>
  readonly hasAliases: boolean
}

/** What is a variable to shells and templates, and a plain text here. */
const VARIABLE_ELSEWHERE = /^\$\w+$|\$[A-Z][A-Z0-9_]+|\{\{.*\}\}/s

/** Walks through a document once, since it may be long, and replaces every scalar that names variables. */
function inspect(document: Document.Parsed, env: Env, placeAt: PlaceAt): Inspected {
  const found: Record<'shape' | 'repeated' | 'unset' | 'literal', Mistake[]> = {
    shape: [],
    repeated: [],
    unset: [],
    literal: [],
  }
  const texts = new Map<Node, string>()
  const anchors = new Set<string>()
  let hasAliases = false
  const path: (string | number)[] = []
  const tell = (kind: keyof typeof found, node: Node | null, message: string): void => {
    found[kind].push({ path: [...path], message, place: placeAt(node?.range?.[0]) })
  }

  function walk(node: unknown): void {
    if (isAlias(node)) {
      hasAliases = true
      if (anchors.has(node.source)) return
      tell(
        'shape',
        node,
        'stands for nothing, since no "&" gives it a name; put a text that begins with "*" in quotes',
      )
      return
    }
    if ((isScalar(node) || isMap(node) || isSeq(node)) && node.anchor !== undefined) anchors.add(node.anchor)
    if (isMap(node)) mapping(node)
    else if (isScalar(node)) scalar(node)
    else if (isSeq(node)) {
      for (const [i, item] of node.items.entries()) {
        path.push(i)
        walk(item)
        path.pop()
      }
    }
  }

  function mapping(map: YAMLMap): void {
    const lineOf = new Map<string, number>()
    for (const pair of map.items) {
      const key = pair.key as Node | null
      const name = nameOf(pair)
      if (name === undefined) tell('shape', key, 'holds a key that is not a word; write a plain one')
      path.push(name ?? '')
      if (name !== undefined) {
        const { line } = placeAt(key!.range![0])
        const before = lineOf.get(name)
        if (name === '__proto__') tell('shape', key, 'unknown key; take it out')
        if (before === undefined) lineOf.set(name, line)
        else tell('repeated', key, `stands here again, first in line ${before}; take one of the two out`)
        if ((key as Scalar).anchor !== undefined) anchors.add((key as Scalar).anchor!)
      }
      walk(pair.value)
      path.pop()
    }
  }

  function scalar(node: Scalar): void {
    if (typeof node.value !== 'string') return
    const given = substitute(node.value, env)
    if (given === undefined) {
      if (VARIABLE_ELSEWHERE.test(node.value)) {
        tell('literal', node, 'is taken as it stands; write ${NAME} for the environment variable NAME')
      }
      return
    }
    if ('problem' in given) {
      tell('unset', node, given.problem)
      return
    }
    node.value = given.value
    if (given.value !== given.text) texts.set(node, given.text)
  }

  walk(document.contents)
  return { ...found, texts, hasAliases }
}

/** A copy in which no two places are one object, as aliases make them. */
function unshared(value: unknown, around: readonly unknown[]): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (around.includes(value)) throw new Error('an alias (*name) stands within what it stands for')
  const inner = [...around, value]
  if (Array.isArray(value)) return value.map((item) => unshared(item, inner))
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unshared(item, inner)]))
}
