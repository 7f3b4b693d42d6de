/** Moves a cursor, begins a line, or turns the direction of the text: control characters, line separators and bidi marks. */
const UNSAFE = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu

/** Replaces what moves a cursor by `\uXXXX`, as JSON may have it too: callers choose some of the text. */
export function escaped(text: string): string {
  return text.replaceAll(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

type Line = Readonly<Record<string, unknown>>

const SHOWN = new Set(['level', 'time', 'msg'])
/** What the sentence of a request shows, or leaves to the JSON log. */
const SHOWN_OF_REQUESTS = new Set([
  ...SHOWN,
  ...[
    'method',
    'host',
    'path',
    'status',
    'source',
    'client',
    'limit',
    'remaining',
    'durationMs',
    'decidedAt',
  ],
  ...['decision', 'mode', 'requestId', 'route', 'upstream', 'upstreamMs', 'ip', 'code', 'error'],
])

/** Formats a log line for people, on one line: what happened first, then the other fields. */
export function prettyLine(line: Line): string {
  return escaped(line['msg'] === 'request' ? requestLine(line) : `${text(line['msg'])}${others(line, SHOWN)}`)
}

function requestLine(line: Line): string {
  const { method, path, status, source, client, limit, remaining, decision, durationMs, error } = line
  const words = [method, path ?? '-', status, `${text(durationMs)} ms`]
  if (client !== undefined) words.push(`client ${text(client)}`)
  if (decision === 'refused') words.push(`refused by ${text(limit)}`)
  else if (remaining !== undefined) words.push(`${text(remaining)} left of ${text(limit)}`)
  if (source === 'gateway' && error !== undefined) words.push(`"${text(error)}"`)
  return `${words.map(text).join(' ')}${others(line, SHOWN_OF_REQUESTS)}`
}

function others(line: Line, shown: ReadonlySet<string>): string {
  return Object.entries(line)
    .filter(([key, value]) => !shown.has(key) && value !== undefined)
    .map(([key, value]) => ` ${key}=${text(value)}`)
    .join('')
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}
