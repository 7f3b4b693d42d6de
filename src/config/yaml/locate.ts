import { isAlias, isMap, isScalar, isSeq, type Document, type Node, type Pair } from 'yaml'

/** From the document to a value: keys and positions in lists. */
export type Path = readonly (string | number)[]

/** What stands at a path. */
export interface Found {
  readonly key: Node | undefined
  readonly value: Node | undefined
  /** Did the path lead to its end? */
  readonly whole: boolean
}

/** The key and value at the end of the path, or of the innermost thing around it; through aliases and merge keys. */
export function locate(document: Document.Parsed, path: Path): Found {
  let found: Found = { key: undefined, value: document.contents ?? undefined, whole: true }
  for (const step of path) {
    const next = inside(resolved(found.value, document), step, document)
    if (next === undefined) return { key: found.key, value: found.key ?? found.value, whole: false }
    found = { ...next, whole: true }
  }
  return found
}

type Inside = Pick<Found, 'key' | 'value'>

function inside(node: unknown, step: string | number, document: Document.Parsed): Inside | undefined {
  if (!isSeq(node)) return pairIn(node, String(step), document)
  const item = node.items[Number(step)] as Node | undefined
  return item && { key: undefined, value: item }
}

function pairIn(node: unknown, name: string, document: Document.Parsed): Inside | undefined {
  if (!isMap(node)) return undefined
  const pair = node.items.find((pair) => nameOf(pair) === name)
  if (pair) return { key: pair.key as Node, value: (pair.value as Node | null) ?? undefined }
  const merge = resolved(node.items.find((pair) => nameOf(pair) === '<<')?.value, document)
  for (const source of isSeq(merge) ? merge.items : [merge]) {
    const merged = pairIn(resolved(source, document), name, document)
    if (merged) return merged
  }
  return undefined
}

/** The key as a word; the parser makes a symbol of a merge key. */
export function nameOf({ key }: Pair): string | undefined {
  if (!isScalar(key)) return undefined
  return typeof key.value === 'symbol' ? key.value.description : String(key.value)
}

function resolved(node: unknown, document: Document.Parsed): unknown {
  return isAlias(node) ? node.resolve(document) : node
}
