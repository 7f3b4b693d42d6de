import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } from 'yaml'
import type { Document, Node, Scalar } from 'yaml'
import { type Env, inspect } from './inspect.ts'
import type { Mistake, Path, Place } from './problem.ts'
import { wordError } from './wording.ts'

/** What a YAML text says. */
export interface Source {
  /** Undefined where the mistakes leave no mapping. */
  readonly value: Mapping | undefined
  readonly mistakes: readonly Mistake[]
  /** What is not wrong, but probably not meant either. */
  readonly warnings: readonly Mistake[]
  /** Where the path's value or key stands, or the innermost thing around it; within an alias, where its anchor is. */
  placeOf(path: Path, key?: boolean): Place
}

/** Keys and their values. */
export type Mapping = Readonly<Record<string, unknown>>

/** More uses of an anchor, times what it multiplies itself, are an attack. */
const MAX_ALIASES = 100

/** The deepest that brackets may nest, those in texts and comments too; many thousands make the parser take all memory. */
const MAX_DEPTH = 1000

/** The core schema, whatever the file asks for. */
const OPTIONS = {
  schema: 'core',
  merge: true,
  stringKeys: true,
  prettyErrors: false,
  logLevel: 'error',
} as const

/** Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure. */
export function readSource(source: string, env: Env): Source {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const placeAt = (offset = 0): Place => {
    const { line, col } = lineCounter.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const refuse = (mistakes: readonly Mistake[]): Source => ({
    value: undefined,
    mistakes,
    warnings: [],
    placeOf: () => placeAt(),
  })
  const wrong = (message: string, offset?: number) => ({ path: [], message, place: placeAt(offset) })

  if (depthOf(text) > MAX_DEPTH)
    return refuse([wrong('the brackets of the file nest too deeply; take some out')])
  const document = parseDocument(text, { ...OPTIONS, lineCounter })
  const broken = [...document.errors, ...document.warnings].map((error) =>
    wrong(wordError(error, text), error.pos[0]),
  )
  if (broken.length > 0)
    return refuse(broken.filter(({ place }, i) => place.line !== broken[i - 1]?.place.line))
  const { shape, unset, literal } = inspect(document, env, placeAt)
  if (shape.length > 0) return refuse(shape)
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    if (isMapping(value)) {
      const placeOf = (path: Path, key?: boolean) => placeAt(offsetOf(document, path, key))
      return { value, mistakes: unset, warnings: literal, placeOf }
    }
    const what = document.contents === null ? 'is empty' : 'must be a mapping'
    return refuse([wrong(`the file ${what}; config/sluice.yaml shows what to write`)])
  } catch (error) {
    const { message } = error as Error
    const isBomb = /alias count/i.test(message)
    const bomb = 'the aliases (*name) multiply the file beyond bounds; write the values out'
    return refuse([wrong(isBomb ? bomb : `the file cannot be read: ${message}`)])
  }
}

function depthOf(text: string): number {
  let depth = 0
  let deepest = 0
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth = Math.max(0, depth + (bracket === '[' || bracket === '{' ? 1 : -1))
    deepest = Math.max(deepest, depth)
  }
  return deepest
}

/** True if this is a mapping of keys to values. */
export function isMapping(value: unknown): value is Mapping {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The offset of a path's value or key, or of the innermost thing around it; within an alias, that of what it stands for. */
function offsetOf(document: Document.Parsed, path: Path, atKey = false): number | undefined {
  let [key, value]: Entry = [undefined, document.contents]
  for (const step of path) {
    const next = entryOf(value, step, document)
    if (next === undefined) return (key ?? value)?.range?.[0]
    ;[key, value] = next
  }
  const isBlank = value === null || (isScalar(value) && value.range?.[0] === value.range?.[1])
  return ((atKey || isBlank ? key : undefined) ?? value)?.range?.[0]
}

type Entry = readonly [key: Node | undefined, value: Node | null]

/** The key and value of a step, through aliases and merge keys. */
function entryOf(node: Node | null, step: string | number, document: Document.Parsed): Entry | undefined {
  const inner = isAlias(node) ? node.resolve(document) : node
  if (isSeq(inner)) {
    const item = inner.items[Number(step)] as Node | undefined
    return item && [undefined, item]
  }
  if (!isMap(inner)) return undefined
  const valueOf = (name: string | number) => inner.items.find(({ key }) => (key as Scalar).value === name)
  const pair = valueOf(step)
  if (pair) return [pair.key as Node, pair.value as Node | null]
  const merged = valueOf('<<')?.value
  for (const source of isSeq(merged) ? merged.items : [merged]) {
    const entry = entryOf((source ?? null) as Node | null, step, document)
    if (entry) return entry
  }
  return undefined
}
