import { styleText } from 'node:util'

type Line = Readonly<Record<string, unknown>>

const COLOURS: Readonly<Record<string, 'green' | 'yellow'>> = { info: 'green', warn: 'yellow' }

/** Formats JSON lines for people: the UTC time, the level, the message, the other fields. Text that is not JSON is only escaped. */
export function prettyLines(lines: string): string {
  return lines.replaceAll(/.+/g, (json) => {
    try {
      const line = JSON.parse(json) as Line
      const { level, time, msg, ...fields } = line
      const { claimed, shadowOver, incomplete, cause, omitted } = line
      const isRequest = msg === 'request'
      const message = isRequest ? requestText(line) : text(msg)
      const others = Object.entries(isRequest ? { claimed, shadowOver, incomplete, cause, omitted } : fields)
        .filter(([, value]) => value !== undefined)
        .map(([key, value]) => ` ${key}=${text(value)}`)
      const colouredLevel = styleText(COLOURS[text(level)] ?? 'red', text(level).toUpperCase())
      return `[${text(time).slice(11, 23)}] ${colouredLevel}: ${escaped(message + others.join(''))}`
    } catch {
      return escaped(json)
    }
  })
}

function requestText(line: Line): string {
  const { method, path, status, source, client, limit, remaining, decision, durationMs, error } = line
  const words = [method, path ?? '-', status, `${text(durationMs)} ms`]
  if (client !== undefined) words.push(`client ${text(client)}`)
  if (decision === 'refused') words.push(`refused by ${text(limit)}`)
  else if (remaining !== undefined) words.push(`${text(remaining)} left of ${text(limit)}`)
  if (source === 'gateway' && error !== undefined) words.push(`"${text(error)}"`)
  return words.map(text).join(' ')
}

const text = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''))

/** Control characters, line separators and bidi marks, which move the cursor, start a line or reverse the text. */
const UNSAFE = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu

/** Escapes unsafe characters as `\uXXXX`, which is valid in JSON: callers choose parts of what logs and commands print. */
export const escaped = (text: string): string =>
  text.replaceAll(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
