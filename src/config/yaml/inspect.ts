import { isAlias, isMap, isScalar, isSeq } from 'yaml'
import type { Alias, Document, Node, Scalar } from 'yaml'
import type { Mistake, Place } from './problem.ts'

/** A variable to shells, and a plain text here. */
const UNBRACED = /^\$\w+$|\$[A-Z][A-Z0-9_]+/

/** Walks through a document once, since it may be long, and replaces every scalar that names variables. */
export function inspect(document: Document.Parsed, env: Env, placeAt: (offset?: number) => Place) {
  const shape: Mistake[] = []
  const unset: Mistake[] = []
  const literal: Mistake[] = []
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
        if (key.anchor !== undefined) anchors.set(key.anchor, key)
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
    if (given !== undefined) {
      if ('problem' in given) report(unset, node, given.problem)
      else node.value = given.text
    } else if (UNBRACED.test(node.value))
      report(literal, node, 'is taken as it stands; write ${NAME} for the environment variable NAME')
  }

  walk(document.contents)
  return { shape, unset, literal }
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
