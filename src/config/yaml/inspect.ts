import { isAlias, isPair, isScalar, isSeq, visit } from 'yaml'
import type { Document, Node, Scalar } from 'yaml'
import type { Mistake, Path, Place } from './problem.ts'

/** A variable to shells, and a plain text here. */
const UNBRACED = /^\$\w+$|\$[A-Z][A-Z0-9_]+/

/** Visits a document once, since it may be long, and replaces every scalar that names variables. */
export function inspect(document: Document.Parsed, env: Env, placeAt: (offset?: number) => Place) {
  const shape: Mistake[] = []
  const unset: Mistake[] = []
  const literal: Mistake[] = []
  const anchors = new Map<string, Node>()
  visit(document, {
    Node(key, node, ancestors) {
      const report = (to: Mistake[], message: string): void =>
        void to.push({ path: pathOf(node, ancestors), message, place: placeAt(node.range?.[0]) })
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
      if (!isScalar(node) || typeof node.value !== 'string') return
      if (key === 'key') {
        // JavaScript has another meaning for it, so that records of zod pass it over.
        if (node.value === '__proto__') report(shape, 'unknown key; take it out')
        return
      }
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

/** The keys and positions that lead to a node. */
function pathOf(node: unknown, ancestors: readonly unknown[]): Path {
  return ancestors.flatMap((one, i): Path => {
    if (isPair(one)) return [(one.key as Scalar<string>).value]
    return isSeq(one) ? [one.items.indexOf(ancestors[i + 1] ?? node)] : []
  })
}

const VARIABLE = /\$\$\{|\$\{([^}]*)\}?/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/** The environment: what `${NAME}` stands for. */
export type Env = Readonly<Record<string, string | undefined>>

/**
 * Puts the environment in for `${NAME}` and `${NAME:-default}`; `$${` is a plain `${`. An empty variable counts as unset,
 * as in the shell's `:-`. Undefined where the text names none.
 */
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
