import { escaped } from './escape.ts'

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
  return escaped(
    line['msg'] === 'request' ? ofRequest(line) : `${text(line['msg'])}${rest(line, ALWAYS_SAID)}`,
  )
}

function ofRequest(line: Line): string {
  const { method, path, status, source, client, limit, remaining, decision, durationMs, error } = line
  const words = [method, path ?? '-', status, `${text(durationMs)} ms`]
  if (client !== undefined) words.push(`client ${text(client)}`)
  if (decision === 'refused') words.push(`refused by ${text(limit)}`)
  else if (remaining !== undefined) words.push(`${text(remaining)} left of ${text(limit)}`)
  if (source === 'gateway' && error !== undefined) words.push(`"${text(error)}"`)
  return `${words.map(text).join(' ')}${rest(line, SAID_OF_REQUESTS)}`
}

function rest(line: Line, said: ReadonlySet<string>): string {
  return Object.entries(line)
    .filter(([key, value]) => !said.has(key) && value !== undefined)
    .map(([key, value]) => ` ${key}=${text(value)}`)
    .join('')
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}
