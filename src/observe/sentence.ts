type Line = Readonly<Record<string, unknown>>

const ALWAYS_SAID = new Set(['level', 'time', 'msg'])
const SAID_OF_REQUESTS = new Set([
  ...ALWAYS_SAID,
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
  'decision',
  'mode',
  'requestId',
  'route',
  'upstream',
  'upstreamMs',
  'ip',
  'code',
  'error',
])

/** A log line as one line for people: what happened first, then what else is known. */
export function sentence(line: Line): string {
  if (line['msg'] !== 'request') return `${text(line['msg'])}${rest(line, ALWAYS_SAID)}`
  const { method, path, status, source, client, limit, remaining, decision, durationMs, error } = line
  const words = [method, path ?? '-', status, `${text(durationMs)} ms`]
  if (client !== undefined) words.push(`client ${text(client)}`)
  if (decision === 'refused') words.push(`refused by ${text(limit)}`)
  else if (remaining !== undefined) words.push(`${text(remaining)} left of ${text(limit)}`)
  if (source === 'gateway' && error !== undefined) words.push(`"${text(error)}"`)
  return `${words.map((word) => onOneLine(text(word))).join(' ')}${rest(line, SAID_OF_REQUESTS)}`
}

function rest(line: Line, said: ReadonlySet<string>): string {
  return Object.entries(line)
    .filter(([key, value]) => !said.has(key) && value !== undefined)
    .map(([key, value]) => ` ${key}=${text(value)}`)
    .join('')
}

/** Callers choose some words: none of them begins a line or moves a cursor. */
export function onOneLine(word: string): string {
  return word.replaceAll(/\p{Cc}/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}
