import { isScalar, LineCounter, parseDocument, visit, type Document, type Node, type Pair } from 'yaml'
import { tooDeepAt } from './depth.ts'
import { locate, pathOf, type Path } from './locate.ts'
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
}

/** What a YAML text says. */
export interface Source {
  /** Undefined where the mistakes leave no value to look at. */
  readonly value: unknown
  readonly mistakes: readonly Mistake[]
  /** The text that the environment gave for the value at a path, where it was read as a number or boolean. */
  textAt(path: Path): string | undefined
  /** Where the path's value or key stands, or the innermost thing around it. */
  placeOf(path: Path, key?: boolean): Place
}

/** The core schema whatever the file asks for; keys that stand twice are looked for here, to tell their paths. */
const READING = {
  schema: 'core',
  merge: true,
  uniqueKeys: false,
  prettyErrors: false,
  logLevel: 'error',
} as const

/** Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure. */
export function readSource(source: string, env: Env): Source {
  const text = source.replace(/^\uFEFF/, '')
  const deep = tooDeepAt(text)
  if (deep !== undefined) {
    const place = { line: deep, column: 1 }
    return unreadable([{ path: [], message: 'the brackets nest too deeply; take some out', place }])
  }
  const lineCounter = new LineCounter()
  const placeAt = (offset = 0): Place => {
    const { line, col } = lineCounter.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  let document: Document.Parsed
  try {
    document = parseDocument(text, { ...READING, lineCounter })
  } catch (error) {
    return unreadable([{ path: [], message: wordThrown(error), place: placeAt() }])
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

  const shape = shapeMistakes(document, placeAt)
  if (shape.length > 0) return unreadable(shape)
  const { texts, mistakes } = putEnvironment(document, env, placeAt)
  let value: unknown
  try {
    value = unshared(document.toJS({ maxAliasCount: 100 }), [])
  } catch (error) {
    return unreadable([...mistakes, { path: [], message: wordThrown(error), place: placeAt() }])
  }
  return {
    value,
    mistakes: [...repeatedKeys(document, placeAt), ...mistakes],
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
  return { value: undefined, mistakes, textAt: () => undefined, placeOf: () => ({ line: 1, column: 1 }) }
}

/** Keys that are no words, and aliases that stand for nothing. */
function shapeMistakes(document: Document.Parsed, placeAt: PlaceAt): readonly Mistake[] {
  const mistakes: Mistake[] = []
  const found = (parents: readonly unknown[], node: Node | null, message: string) =>
    mistakes.push({ path: pathOf(parents), message, place: placeAt(node?.range?.[0]) })
  visit(document, {
    Pair(_, pair: Pair, parents) {
      const key = pair.key as Node | null
      if (!isScalar(key)) found(parents, key, 'holds a key that is not a word; write a plain one')
      else if (key.value === '__proto__') found([...parents, pair], key, 'unknown key; take it out')
      return undefined
    },
    Alias(_, alias, parents) {
      if (alias.resolve(document)) return
      found(
        [...parents, alias],
        alias,
        `has an alias without an anchor; write "&${alias.source}" at what it stands for`,
      )
    },
  })
  return mistakes
}

/** Keys that stand twice in their mapping. */
function repeatedKeys(document: Document.Parsed, placeAt: PlaceAt): readonly Mistake[] {
  const mistakes: Mistake[] = []
  visit(document, {
    Map(_, map, parents) {
      const lineOf = new Map<string, number>()
      for (const pair of map.items) {
        const [name] = pathOf([pair])
        const place = placeAt((pair.key as Node).range![0])
        const line = lineOf.get(name as string)
        const message = `stands here again, first in line ${line}; take one of the two out`
        if (line !== undefined) mistakes.push({ path: pathOf([...parents, map, pair]), message, place })
        else lineOf.set(name as string, place.line)
      }
    },
  })
  return mistakes
}

/** Replaces every scalar that names variables; `texts` keeps what was read as a number or boolean. */
function putEnvironment(document: Document.Parsed, env: Env, placeAt: PlaceAt) {
  const texts = new Map<Node, string>()
  const mistakes: Mistake[] = []
  visit(document, {
    Scalar(key, node, parents) {
      if (key === 'key' || typeof node.value !== 'string') return
      const given = substitute(node.value, env)
      if (given === undefined) return
      if ('problem' in given) {
        mistakes.push({
          path: pathOf([...parents, node]),
          message: given.problem,
          place: placeAt(node.range?.[0]),
        })
      } else {
        node.value = given.value
        if (given.value !== given.text) texts.set(node, given.text)
      }
    },
  })
  return { texts, mistakes }
}

/** A copy in which no two places are one object, as aliases make them. */
function unshared(value: unknown, around: readonly unknown[]): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (around.includes(value)) throw new Error('an alias (*name) stands within what it stands for')
  const inner = [...around, value]
  if (Array.isArray(value)) return value.map((item) => unshared(item, inner))
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unshared(item, inner)]))
}
