/** Maximum names of a path, and its maximum length in characters. */
const MAX_NAMES = 10
const MAX_CHARS = 200

/** A name without quotes; a name of only digits could be meant as the index of a list. */
const BARE = /^(?!\d+(?:\.|$))[\p{L}\p{N}_-]+/u
/** A name in quotes, as JSON writes it. */
const QUOTED = /^"(?:[^"\\]|\\.)*"/

/**
 * Parses the path of a member in nested JSON objects: `usage.total_tokens`. A name with other
 * characters than letters, digits, `_` and `-`, or of only digits, is in quotes, with JSON's
 * escapes: `usage."total.tokens"`. Returns the names, or the mistake as a text.
 */
export function parsePath(text: string): readonly string[] | string {
  if (text.length > MAX_CHARS) return `is longer than ${MAX_CHARS} characters`
  if (text.startsWith('$')) return 'begins with "$"; write only the names, such as usage.total_tokens'
  const names: string[] = []
  let rest = text
  for (;;) {
    const [written] = BARE.exec(rest) ?? QUOTED.exec(rest) ?? []
    if (written === undefined) return mistakeAt(rest)
    const name = written.startsWith('"') ? unquote(written) : written
    if (name === undefined) return `has a name in quotes that JSON does not read: ${written}`
    names.push(name)
    rest = rest.slice(written.length)
    if (rest === '') break
    if (!rest.startsWith('.')) return mistakeAt(rest)
    rest = rest.slice(1)
  }
  return names.length > MAX_NAMES ? `has more than ${MAX_NAMES} names` : names
}

function mistakeAt(rest: string): string {
  if (rest === '') return 'ends without a name; write one such as usage.total_tokens'
  if (rest.startsWith('[') || /^\d/.test(rest))
    return 'leads into a list, which is not read; write only names, and a name of digits in quotes'
  if (rest.startsWith('.')) return 'has an empty name; write names with one dot between them'
  return `has ${JSON.stringify(/^./su.exec(rest)![0])} outside of quotes; put the name in double quotes`
}

/** Returns the name that JSON writes so; undefined if it is not JSON. */
function unquote(written: string): string | undefined {
  try {
    return JSON.parse(written) as string
  } catch {
    return undefined
  }
}
