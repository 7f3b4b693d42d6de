import { isAlias, isMap, isPair, isScalar, isSeq, LineCounter, parseDocument, visit } from 'yaml'
import type { Document, Node, Pair, Scalar, YAMLMap } from 'yaml'
import { type Issue, type Path, type Position, describeYamlError } from './issue.ts'

export type Mapping = Readonly<Record<string, unknown>>
/** The environment: values of the variables `${NAME}`. */
export type Env = Readonly<Record<string, string | undefined>>

/** Maximum uses of an anchor, multiplied by the aliases within it; more are an attack. */
const MAX_ALIASES = 100
/** Maximum nesting of brackets, including those in texts and comments; many thousands exhaust the parser's memory. */
const MAX_DEPTH = 1000

/**
 * Reads one YAML document and substitutes the environment in each scalar, so that no value can change the structure. Without an
 * environment, variables are left as written. `value` is undefined if the mistakes leave no mapping. `positionOf` locates a path's
 * value or key, or the innermost node around it.
 */
export function readSource(source: string, env?: Env) {
  const text = source.replace(/^\uFEFF/, '')
  const lineCounter = new LineCounter()
  const positionAt = (offset = 0): Position => {
    const { line, col } = lineCounter.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const refuse = (mistakes: readonly Issue[]) =>
    ({ value: undefined, mistakes, warnings: [], positionOf: () => positionAt() }) as const
  const mistake = (message: string, offset?: number) => ({ path: [], message, position: positionAt(offset) })

  if (isTooDeep(text)) return refuse([mistake('the brackets of the file nest too deeply; remove some')])
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
  const errors = [...document.errors, ...document.warnings].map((error) =>
    mistake(describeYamlError(error, text), error.pos[0]),
  )
  if (errors.length > 0)
    return refuse(errors.filter(({ position }, i) => position.line !== errors[i - 1]?.position.line))
  const { invalid, unset, literal } = inspect(document, env, mistake)
  if (invalid.length > 0) return refuse(invalid)
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    const positionOf = (path: Path, key?: boolean) => positionAt(offsetOf(document, path, key))
    if (isMapping(value)) return { value, mistakes: unset, warnings: literal, positionOf }
    const what = document.contents === null ? 'is empty' : 'must be a mapping'
    return refuse([mistake(`the file ${what}; config/sluice.yaml shows what to write`)])
  } catch (error) {
    const { message } = error as Error
    const bomb = 'the aliases (*name) multiply the file beyond bounds; write the values out'
    return refuse([mistake(/alias count/i.test(message) ? bomb : `the file cannot be read: ${message}`)])
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

/** Returns the offset of a path's value or key, or of the innermost node around it; within an alias, that in its anchor. */
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

/** Returns the key and value of a step, through aliases and merge keys. */
function entryOf(node: Node | null, step: string | number, document: Document.Parsed): Entry | undefined {
  const inner = isAlias(node) ? node.resolve(document) : node
  if (isSeq(inner)) {
    const item = inner.items[Number(step)] as Node | undefined
    return item && [undefined, item]
  }
  if (!isMap(inner)) return undefined
  const pairOf = (name: string | number) => inner.items.find(({ key }) => (key as Scalar).value === name)
  const pair = pairOf(step)
  if (pair) return [pair.key as Node, pair.value as Node | null]
  const merged = pairOf('<<')?.value
  for (const source of isSeq(merged) ? merged.items : [merged]) {
    const entry = entryOf((source ?? null) as Node | null, step, document)
    if (entry) return entry
  }
  return undefined
}

type CreateMistake = (message: string, offset?: number) => Issue

/** Text that looks like a shell or template variable but is not substituted. */
const UNBRACED = /^\$\w+$|\$[A-Z][A-Z0-9_]+|\{\{.*\}\}/

/** Substitutes the environment in every scalar and finds mistakes, in one pass, because the document may be long. */
function inspect(document: Document.Parsed, env: Env | undefined, mistake: CreateMistake) {
  const found = { invalid: [] as Issue[], unset: [] as Issue[], literal: [] as Issue[] }
  const anchors = new Map<string, Node>()
  visit(document, {
    Node(key, node, ancestors) {
      const report = (kind: keyof typeof found, message: string): void =>
        void found[kind].push({ ...mistake(message, node.range?.[0]), path: pathOf(node, ancestors) })
      if (isAlias(node)) {
        const anchored = anchors.get(node.source)
        if (anchored === undefined)
          report('invalid', 'is a YAML alias without an anchor ("&"); quote a value that begins with "*"')
        else if (anchored.range![1] > node.range![0])
          report('invalid', 'is a YAML alias within its own anchor; write the value out')
        return
      }
      if (node.anchor !== undefined) anchors.set(node.anchor, node)
      for (const { range } of isMap(node) ? duplicates(node) : [])
        found.invalid.push(mistake('duplicate key; remove one of the two', range?.[0]))
      if (!isScalar(node) || typeof node.value !== 'string') return
      if (key === 'key') {
        // JavaScript treats the key specially, and zod's records skip it.
        if (node.value === '__proto__') report('invalid', 'unknown key; remove it')
        return
      }
      if (env === undefined) return
      if (node.value.includes('${')) {
        const { text, problem } = substitute(node.value, env)
        if (problem === undefined) node.value = text
        else report('unset', problem)
      } else if (UNBRACED.test(node.value))
        report('literal', 'is not substituted; write ${NAME} for the environment variable NAME')
    },
  })
  return found
}

/** Returns the keys of a mapping that occur before. */
function duplicates(map: YAMLMap): readonly Scalar[] {
  const seen = new Set<unknown>()
  const keys = (map.items as readonly Pair<Scalar>[]).map(({ key }) => key)
  return keys.filter(({ value }) => value !== '<<' && seen.size === seen.add(value).size)
}

/** Returns the keys and list indexes that lead to a node. */
function pathOf(node: unknown, ancestors: readonly unknown[]): Path {
  return ancestors.flatMap((ancestor, i): Path => {
    if (isPair(ancestor)) return [(ancestor.key as Scalar<string>).value]
    return isSeq(ancestor) ? [ancestor.items.indexOf(ancestors[i + 1] ?? node)] : []
  })
}

const VARIABLE = /\$\$\{|\$\{([^}]*)\}?/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/** Substitutes `${NAME}` and `${NAME:-default}`, where an empty variable counts as unset; `$${` becomes `${`. */
function substitute(source: string, env: Env) {
  let problem: string | undefined
  const text = source.replace(VARIABLE, (all, inside: string | undefined) => {
    if (inside === undefined) return '${'
    const [, name, otherwise] = INSIDE.exec(inside) ?? []
    if (!all.endsWith('}')) problem ??= `has a "\${" without "}"; write \${NAME}, or $\${ for a literal "\${"`
    else if (name === undefined)
      problem ??= `has a "\${" without a variable name; write \${NAME} or \${NAME:-default}`
    else if (otherwise?.includes('${'))
      problem ??= `has a variable within the default of \${${name}}; write a literal default`
    else {
      const value = env[name] || otherwise
      if (value !== undefined) return value
      const state = env[name] === '' ? 'empty' : 'not set'
      problem ??= `needs the environment variable ${name}, which is ${state}; set it or write \${${name}:-default}`
    }
    return ''
  })
  return { text, problem }
}
