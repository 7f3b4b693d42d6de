import { isAlias, isMap, isPair, isScalar, isSeq, LineCounter, parseDocument, visit } from 'yaml'
import type { Document, Node, Pair, Scalar, YAMLMap } from 'yaml'
import { type Issue, type Path, type Position, describeYamlError } from './issue.ts'

export type Mapping = Readonly<Record<string, unknown>>

/** More uses of an anchor, times what it multiplies itself, are an attack. */
const MAX_ALIASES = 100

/** The deepest that brackets may nest, those in texts and comments too; many thousands make the parser take all memory. */
const MAX_DEPTH = 1000

/** The environment: what `${NAME}` stands for. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure; without an
 * environment, variables stay as they are written. `value` is undefined where the mistakes leave no mapping. `placeOf` finds a path's value or key, or the innermost thing around it.
 */
export function readSource(source: string, env?: Env) {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const positionAt = (offset = 0): Position => {
    const { line, col } = lineCounter.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const refuse = (mistakes: readonly Issue[]) =>
    ({ value: undefined, mistakes, warnings: [], placeOf: () => positionAt() }) as const
  const wrong = (message: string, offset?: number) => ({ path: [], message, place: positionAt(offset) })

  if (isTooDeep(text)) return refuse([wrong('the brackets of the file nest too deeply; take some out')])
  const document = parseDocument(text, {
    // The core schema, whatever the file asks for.
    schema: 'core',
    merge: true,
    stringKeys: true,
    // `inspect` finds duplicates: here that takes the square of the number of keys.
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
    lineCounter,
  })
  const broken = [...document.errors, ...document.warnings].map((error) =>
    wrong(describeYamlError(error, text), error.pos[0]),
  )
  if (broken.length > 0)
    return refuse(broken.filter(({ place }, i) => place.line !== broken[i - 1]?.place.line))
  const { shape, unset, literal } = inspect(document, env, positionAt)
  if (shape.length > 0) return refuse(shape)
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    if (isMapping(value)) {
      const positionOf = (path: Path, key?: boolean) => positionAt(offsetOf(document, path, key))
      return { value, mistakes: unset, warnings: literal, placeOf: positionOf }
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

function isTooDeep(text: string): boolean {
  let depth = 0
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth = Math.max(0, depth + (bracket === '[' || bracket === '{' ? 1 : -1))
    if (depth > MAX_DEPTH) return true
  }
  return false
}

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

/** A variable to shells or to templates, and a plain text here. */
const UNBRACED = /^\$\w+$|\$[A-Z][A-Z0-9_]+|\{\{.*\}\}/

/** Visits a document once, since it may be long, and replaces every scalar that names variables. */
function inspect(document: Document.Parsed, env: Env | undefined, positionAt: (offset?: number) => Position) {
  const shape: Issue[] = []
  const unset: Issue[] = []
  const literal: Issue[] = []
  const anchors = new Map<string, Node>()
  visit(document, {
    Node(key, node, ancestors) {
      const report = (to: Issue[], message: string): void =>
        void to.push({ path: pathOf(node, ancestors), message, place: positionAt(node.range?.[0]) })
      if (isAlias(node)) {
        const anchored = anchors.get(node.source)
        if (anchored === undefined)
          report(
            shape,
            'stands for nothing, since no "&" gives it a name; put a text that begins with "*" in quotes',
          )
        else if (anchored.range![1] > node.range![0])
          report(shape, 'stands within what it stands for; write the value out')
        return
      }
      if (node.anchor !== undefined) anchors.set(node.anchor, node)
      if (isMap(node)) shape.push(...duplicates(node, positionAt))
      if (!isScalar(node) || typeof node.value !== 'string') return
      if (key === 'key') {
        // JavaScript has another meaning for it, so that records of zod pass it over.
        if (node.value === '__proto__') report(shape, 'unknown key; take it out')
        return
      }
      if (env === undefined) return
      const given = substitute(node.value, env)
      if (given === undefined) {
        if (UNBRACED.test(node.value))
          report(literal, 'is taken as it stands; write ${NAME} for the environment variable NAME')
      } else if (given.problem !== undefined) report(unset, given.problem)
      else node.value = given.text
    },
  })
  return { shape, unset, literal }
}

function* duplicates(map: YAMLMap, positionAt: (offset?: number) => Position): Generator<Issue> {
  const seen = new Set<unknown>()
  for (const { key } of map.items as readonly Pair<Scalar>[]) {
    if (!seen.has(key.value) || key.value === '<<') seen.add(key.value)
    else
      yield { path: [], message: 'duplicate key; remove one of the two', place: positionAt(key.range?.[0]) }
  }
}

/** The keys and positions that lead to a node. */
function pathOf(node: unknown, ancestors: readonly unknown[]): Path {
  return ancestors.flatMap((one, i): Path => {
    if (isPair(one)) return [(one.key as Scalar<string>).value]
    return isSeq(one) ? [one.items.indexOf(ancestors[i + 1] ?? node)] : []
  })
}

const VARIABLE = /\$\$\{|\$\{([^}]*)\}?/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/** Puts the environment in for `${NAME}` and `${NAME:-default}`, where an empty variable counts as unset; `$${` is a plain `${`. Undefined without any. */
function substitute(source: string, env: Env) {
  if (!source.includes('${')) return undefined
  let problem: string | undefined
  const text = source.replace(VARIABLE, (all, inside: string | undefined) => {
    if (inside === undefined) return '${'
    const [, name, otherwise] = INSIDE.exec(inside) ?? []
    if (!all.endsWith('}'))
      problem ??= `has a "\${" that no "}" ends; write \${NAME}, or $\${ for a plain "\${"`
    else if (name === undefined)
      problem ??= `has a "\${" that names no variable; write \${NAME} or \${NAME:-default}`
    else if (otherwise?.includes('${'))
      problem ??= `has a variable within the default of \${${name}}; write a plain one`
    else {
      const value = env[name]
      if (value !== undefined && value !== '') return value
      if (otherwise !== undefined) return otherwise
      problem ??= `needs the environment variable ${name}, which is ${value === '' ? 'empty' : 'not set'}; set it or write \${${name}:-default}`
    }
    return ''
  })
  return { text, problem }
}
