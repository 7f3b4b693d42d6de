import { styleText } from 'node:util'
import { escaped } from './unsafe-characters.ts'

type Fields = Readonly<Record<string, unknown>>

const COLOURS: Readonly<Record<string, 'green' | 'yellow'>> = { info: 'green', warn: 'yellow' }

/** The fields of a request that are shown after its text. */
const SHOWN_FIELDS = new Set(['claimed', 'shadowOver', 'incomplete', 'waitedMs', 'cause', 'omitted'])

/**
 * Formats JSON lines for people: the UTC time, the level, the message, the other fields. Text that
 * is not JSON is only escaped.
 */
export function prettyLines(lines: string): string {
  return lines.replaceAll(/.+/g, (json) => {
    try {
      const { level, time, msg, ...fields } = JSON.parse(json) as Fields
      const isRequest = msg === 'request'
      const message = isRequest ? requestText(fields) : textOf(msg)
      const others = Object.entries(fields)
        .filter(([key]) => !isRequest || SHOWN_FIELDS.has(key))
        .map(([key, value]) => ` ${key}=${textOf(value)}`)
      const shownLevel = styleText(COLOURS[textOf(level)] ?? 'red', textOf(level).toUpperCase())
      return `[${textOf(time).slice(11, 23)}] ${shownLevel}: ${escaped(message + others.join(''))}`
    } catch {
      return escaped(json)
    }
  })
}

function requestText(fields: Fields): string {
  const { method, path, status, durationMs, client, caller } = fields
  const { source, decision, limit, remaining, error } = fields
  const words = [method, path ?? '-', status, durationMs, 'ms']
  if (caller !== undefined) words.push(caller)
  else if (client !== undefined) words.push('client', client)
  if (decision === 'refused') words.push('refused by', limit)
  else if (remaining !== undefined) words.push(remaining, 'left of', limit)
  if (source === 'gateway' && error !== undefined) words.push(`"${textOf(error)}"`)
  return words.map(textOf).join(' ')
}

const textOf = (value: unknown = '') => (typeof value === 'string' ? value : JSON.stringify(value))
