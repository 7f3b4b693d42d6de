/**
 * Splits a line at its blanks, in linear time. A field in quotes or in brackets may contain blanks;
 * a quote in quotes has a backslash before it.
 */
export function splitFields(text: string): readonly string[] {
  const fields: string[] = []
  let at = 0
  while (at < text.length) {
    const first = text[at]
    if (first === ' ') {
      at++
      continue
    }
    if (first === '"' || first === '[') {
      const end = first === '"' ? closingQuote(text, at + 1) : closingBracket(text, at + 1)
      fields.push(text.slice(at + 1, end))
      at = end + 1
    } else {
      const end = text.indexOf(' ', at)
      fields.push(text.slice(at, end === -1 ? text.length : end))
      at = end === -1 ? text.length : end
    }
  }
  return fields
}

function closingQuote(text: string, from: number): number {
  let at = from
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return Math.min(at, text.length)
}

function closingBracket(text: string, from: number): number {
  const end = text.indexOf(']', from)
  return end === -1 ? text.length : end
}

const ESCAPE = /\\(?:x([0-9A-Fa-f]{2})|(.))/g

/** Decodes the escapes by which nginx and Apache write quotes, backslashes and control characters. */
export function unescaped(text: string): string {
  if (!text.includes('\\')) return text
  return text.replaceAll(ESCAPE, (_, code: string | undefined, character: string) =>
    code === undefined ? character : String.fromCharCode(Number.parseInt(code, 16)),
  )
}

/** The text that collectors write before a line: the runtime of Kubernetes (CRI), `docker compose logs`, and syslog. */
const PREFIXES = [
  /^\S{20,40} std(?:out|err) F /,
  /^[\w.-]{1,100} +\| /,
  /^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S{8,24}) \S{1,255} [^\s:[]{1,100}(?:\[\d{1,10}\])?: /,
  // Directly from a program to its syslog socket, without a host.
  /^<\d{1,3}>[A-Z][a-z]{2} [ \d]\d [\d:]{8} [^\s:[]{1,100}(?:\[\d{1,10}\])?: /,
]

/** Returns a line of text without the prefix of a collector. */
export function withoutPrefix(text: string): string {
  for (const prefix of PREFIXES) {
    const [found] = prefix.exec(text) ?? []
    if (found !== undefined) return text.slice(found.length)
  }
  return text
}
