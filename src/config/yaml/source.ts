import { isAlias, isMap, isScalar, isSeq, LineCounter, YAMLParseError } from 'yaml'
import type { Alias, Document, Node, Scalar } from 'yaml'
import { offsetOf, parseDocument } from './parse.ts'
import type { Mistake, Path, Place } from './problem.ts'
import { wordError } from './wording.ts'

/** What a YAML text says. */
export interface Source {
  /** Undefined where the mistakes leave no mapping. */
  readonly value: Mapping | undefined
  readonly mistakes: readonly Mistake[]
  /** Where the path's value or key stands, or the innermost thing around it; within an alias, where its anchor is. */
  placeOf(path: Path, key?: boolean): Place
}

/** Keys and their values. */
export type Mapping = Readonly<Record<string, unknown>>

/** More uses of an anchor, times what it multiplies itself, are an attack. */
const MAX_ALIASES = 100

/** Reads one YAML document, with the environment put in scalar by scalar, so that no value can change the structure. */
export function readSource(source: string, env: Env): Source {
  const text = source.replace(/^\uFEFF/, '')
  const lines = new LineCounter()
  const placeAt = (offset = 0): Place => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const refuse = (mistakes: readonly Mistake[]): Source => ({
    value: undefined,
    mistakes,
    placeOf: () => placeAt(),
  })
  const wrong = (message: string, offset?: number) => ({ path: [], message, place: placeAt(offset) })
  try {
    const document = parseDocument(text, lines)
    const broken = [...document.errors, ...document.warnings].map((error) =>
      wrong(wordError(error, text), error.pos[0]),
    )
    if (broken.length > 0)
      return refuse(broken.filter(({ place }, i) => place.line !== broken[i - 1]?.place.line))
    const { shape, unset } = inspect(document, env, placeAt)
    if (shape.length > 0) return refuse(shape)
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    if (!isMapping(value)) {
      const what = document.contents === null ? 'is empty' : 'must be a mapping'
      return refuse([wrong(`the file ${what}; config/sluice.yaml shows its keys`)])
    }
    return { value, mistakes: unset, placeOf: (path, key) => placeAt(offsetOf(document, path, key)) }
  } catch (error) {
    if (error instanceof YAMLParseError) return refuse([wrong(wordError(error, text), error.pos[0])])
    const { message } = error as Error
    const words = /alias count/i.test(message)
      ? 'the aliases (*name) multiply the file beyond bounds; write the values out'
      : `the file cannot be read: ${message}`
    return refuse([wrong(words)])
  }
}

/** True if this is a mapping of keys to values. */
export function isMapping(value: unknown): value is Mapping {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

type PlaceAt = (offset?: number) => Place

/** Walks through a document once, since it may be long, and replaces every scalar that names variables. */
function inspect(document: Document.Parsed, env: Env, placeAt: PlaceAt) {
  const shape: Mistake[] = []
  const unset: Mistake[] = []
  const anchors = new Map<string, Node>()
  const path: (string | number)[] = []
  const report = (to: Mistake[], node: Node, message: string): void => {
    to.push({ path: [...path], message, place: placeAt(node.range?.[0]) })
  }

  function walk(node: unknown): void {
    if (isAlias(node)) return alias(node)
    if (!isScalar(node) && !isMap(node) && !isSeq(node)) return
    if (node.anchor !== undefined) anchors.set(node.anchor, node)
    if (isScalar(node)) scalar(node)
    else if (isMap(node)) {
      for (const pair of node.items) {
        const key = pair.key as Scalar<string>
        path.push(key.value)
        // JavaScript has another meaning for it, so that records of zod pass it over.
        if (key.value === '__proto__') report(shape, key, 'unknown key; take it out')
        walk(pair.value)
        path.pop()
      }
    } else {
      for (const [i, item] of node.items.entries()) {
        path.push(i)
        walk(item)
        path.pop()
      }
    }
  }

  function alias(node: Alias): void {
    const anchored = anchors.get(node.source)
    if (anchored === undefined)
      report(
        shape,
        node,
        'stands for nothing, since no "&" gives it a name; put a text that begins with "*" in quotes',
      )
    else if (anchored.range![1] > node.range![0])
      report(shape, node, 'stands within what it stands for; write the value out')
  }

  function scalar(node: Scalar): void {
    if (typeof node.value !== 'string') return
    const given = substitute(node.value, env)
    if (given === undefined) return
    if ('problem' in given) report(unset, node, given.problem)
    else node.value = given.text
  }

  walk(document.contents)
  return { shape, unset }
}

const VARIABLE = /\$\$\{|\$\{([^}]*)\}?/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/** The environment: what `${NAME}` stands for. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Puts the environment in for `${NAME}` and `${NAME:-default}`; `$${` is a plain `${`. An empty variable counts as unset,
 * as in the shell's `:-`. Undefined where the text names none.
 */
function substitute(
  source: string,
  env: Env,
): { readonly text: string } | { readonly problem: string } | undefined {
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
  return problem === undefined ? { text } : { problem }
}
