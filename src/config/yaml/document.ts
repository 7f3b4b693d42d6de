import { isAlias, isMap, isScalar, isSeq, parseDocument } from 'yaml'
import type { Document, Node, Scalar } from 'yaml'
import type { Issue, Path } from './issue.ts'

/**
 * Maximum nodes that the aliases of one anchor stand for: its uses times the aliases within it. The
 * default of 100 refuses files that use an anchor for each of 100 routes.
 */
export const MAX_ALIAS_COUNT = 1_000_000

/** Parses a text as one YAML document, without checks that others do. */
export const parseYaml = (text: string): Document.Parsed =>
  parseDocument(text, {
    // The core schema, even if the file requests another.
    schema: 'core',
    merge: true,
    stringKeys: true,
    // `mistakesIn` finds duplicates; the parser compares each key with each other.
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
  })

/** Returns the value of a document. Throws an `Error` if its aliases multiply beyond `MAX_ALIAS_COUNT`. */
export const valueOf = (document: Document.Parsed): unknown =>
  document.toJS({ maxAliasCount: MAX_ALIAS_COUNT })

/**
 * Returns the offset of a path's value or key, or of the innermost node around it; within an alias,
 * that in its anchor.
 */
export function findOffset(document: Document.Parsed, { path, key: atKey = false }: Issue): number {
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
export function mistakesIn(root: Node | null): readonly Issue[] {
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
