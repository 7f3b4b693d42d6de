const VARIABLE = /\$\$\{|\$\{([^}]*)\}?/g
const INSIDE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s
const WHOLE = /^\$\{[^}]*\}$/

/** The environment: what `${NAME}` stands for. */
export type Env = Readonly<Record<string, string | undefined>>

/** A text after substitution: typed like a plain YAML scalar where it was one `${NAME}` and nothing else. */
type Substituted =
  | { readonly value: string | number | boolean; readonly text: string }
  | { readonly problem: string }

/**
 * Puts the environment in for `${NAME}` and `${NAME:-default}`; `$${` is a plain `${`. An empty variable counts as unset,
 * as in the shell's `:-`. Undefined where the text names none.
 */
export function substitute(source: string, env: Env): Substituted | undefined {
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
  if (problem !== undefined) return { problem }
  return { value: WHOLE.test(source) ? typed(text) : text, text }
}

/** The value that a plain YAML scalar of this text has; texts that YAML would read as nothing stay texts. */
export function typed(text: string): string | number | boolean {
  if (/^(?:true|True|TRUE)$/.test(text)) return true
  if (/^(?:false|False|FALSE)$/.test(text)) return false
  return /^[-+]?(?:\d+|\d*\.\d+|\d+\.)(?:[eE][-+]?\d+)?$/.test(text) ? Number(text) : text
}
