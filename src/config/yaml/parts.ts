import { isObject, type JsonObject } from '../../runtime/json.ts'
import { findOffset, mistakesIn, parseYaml, valueOf } from './document.ts'
import type { Issue, Path } from './issue.ts'

/** Minimum characters of a file that is parsed in parts, which takes about as long as at once. */
const MIN_LENGTH = 200_000
/** Characters of a part: the parser needs about 100 times as many bytes. */
const PART_LENGTH = 50_000

/** Matches the key of the clients with nothing behind it, then the indentation of the first item. */
const CLIENTS = /(?<![^\n])clients:[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)(?=- )/g
/** Match the end of the list: a line that begins with anything else, for items with and without indentation. */
const END = /\n(?=[^\s#])/g
const END_OF_FLAT = /\n(?=[^\s#-]|-[^ \t\r\n])/g

/** A part of the text with some clients. */
interface Part {
  readonly from: number
  readonly to: number
  /** The index of its first client. */
  readonly first: number
}

/**
 * Reads a long file whose clients are a list with one item a line or several: some clients at a time,
 * because the parser needs about 8 kB for each, at once 800 MB for 100,000. Returns undefined for other
 * files and if a part is not valid by itself, such as one with an alias: `readSource` then parses the
 * whole, and finds the mistakes.
 */
export function readParts(text: string) {
  if (text.length < MIN_LENGTH) return undefined
  const list = findList(text)
  if (list === undefined) return undefined
  const { from, to, separator, indent } = list
  const others = read(text.slice(0, from) + text.slice(to))
  if (!isObject(others?.value) || others.value['clients'] !== null) return undefined
  const clients: unknown[] = []
  const parts: Part[] = []
  for (let at = from; at < to; at = parts.at(-1)!.to) {
    const next = text.indexOf(separator, at + PART_LENGTH) + 1
    const part = { from: at, to: next === 0 || next > to ? to : next, first: clients.length }
    const items = read(text.slice(part.from, part.to))?.value
    if (!Array.isArray(items)) return undefined
    parts.push(part)
    for (const item of items) clients.push(item)
  }
  const value: JsonObject = { ...others.value, clients }

  let latest: { readonly part: Part; readonly document: ReturnType<typeof parseYaml> } | undefined
  /** Returns the offset of a place in the client with an index. */
  function offsetInClient(index: number, path: Path, issue: Issue): number {
    const part = parts.findLast(({ first }) => first <= index)!
    if (latest?.part !== part) latest = { part, document: parseYaml(text.slice(part.from, part.to)) }
    return part.from + findOffset(latest.document, { ...issue, path: [index - part.first, ...path] })
  }
  return {
    value,
    offsetOf(issue: Issue): number {
      const [section, index, ...path] = issue.path
      if (section === 'clients' && typeof index === 'number') return offsetInClient(index, path, issue)
      if (section === 'clients' && issue.key !== true) return from + indent
      const offset = findOffset(others.document, issue)
      return offset < from ? offset : offset + to - from
    },
  }
}

/** Returns a text without its list of clients, for those who need another section of a file with mistakes. */
export function withoutClientList(text: string): string {
  const list = findList(text)
  return list === undefined ? text : text.slice(0, list.from) + text.slice(list.to)
}

/** Finds the items of the clients: from the line of the first one, to that of the next section. */
function findList(text: string) {
  const [found, more] = text.matchAll(CLIENTS)
  if (found === undefined || more !== undefined) return undefined
  const [{ length }, { length: indent }] = found as unknown as readonly [string, string]
  const from = found.index + length - indent
  const end = new RegExp(indent === 0 ? END_OF_FLAT : END)
  end.lastIndex = from
  const to = (end.exec(text)?.index ?? text.length - 1) + 1
  return { from, to, separator: `\n${' '.repeat(indent)}- `, indent }
}

/** Parses a text; undefined if it has a mistake. */
function read(text: string) {
  const document = parseYaml(text)
  if (document.errors.length + document.warnings.length > 0) return undefined
  if (mistakesIn(document.contents).length > 0) return undefined
  try {
    return { document, value: valueOf(document) }
  } catch {
    return undefined
  }
}
