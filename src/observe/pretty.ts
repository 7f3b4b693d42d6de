import { styleText } from 'node:util'

type Line = Readonly<Record<string, unknown>>

const COLOURS: Readonly<Record<string, 'green' | 'yellow'>> = { info: 'green', warn: 'yellow' }

/** Formats lines of JSON for people: the UTC time, the level, what happened, the other fields. What is no JSON stays. */
export function prettyLines(lines: string): string {
  return lines.replaceAll(/.+/g, (json) => {
    try {
      const line = JSON.parse(json) as Line
      const { level, time, msg, ...fields } = line
      const { claimed, shadowOver, incomplete, cause, omitted } = line
      const isRequest = msg === 'request'
      const words = isRequest ? requestWords(line) : text(msg)
      const others = Object.entries(isRequest ? { claimed, shadowOver, incomplete, cause, omitted } : fields)
        .filter(([, value]) => value !== undefined)
        .map(([key, value]) => ` ${key}=${text(value)}`)
      const shownLevel = styleText(COLOURS[text(level)] ?? 'red', text(level).toUpperCase())
      return `[${text(time).slice(11, 23)}] ${shownLevel}: ${escaped(words + others.join(''))}`
    } catch {
      return escaped(json)
    }
  })
}

function requestWords(line: Line): string {
  const { method, path, status, source, client, limit, remaining, decision, durationMs, error } = line
  const words = [method, path ?? '-', status, `${text(durationMs)} ms`]
  if (client !== undefined) words.push(`client ${text(client)}`)
  if (decision === 'refused') words.push(`refused by ${text(limit)}`)
  else if (remaining !== undefined) words.push(`${text(remaining)} left of ${text(limit)}`)
  if (source === 'gateway' && error !== undefined) words.push(`"${text(error)}"`)
  return words.map(text).join(' ')
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}

/** Moves a cursor, begins a line, or turns the direction of the text: control characters, line separators and bidi marks. */
const UNSAFE = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu

/** Replaces what moves a cursor by `\uXXXX`, as JSON may have it too: callers choose some of what logs and commands print. */
export function escaped(text: string): string {
  return text.replaceAll(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
