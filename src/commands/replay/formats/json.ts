import type { JsonObject } from '../../../runtime/json.ts'
import { addressOf, callOf, requestLine, textOrNone, unreadable } from './call.ts'
import { readerOfObjects } from './objects.ts'

/** The names under which JSON logs, such as nginx's with a `log_format`, write a value; the first counts. */
const NAMES = {
  time: ['time', 'timestamp', '@timestamp', 'ts', 'msec', 'time_iso8601', 'time_local', 'datetime'],
  method: ['method', 'request_method', 'http_method', 'verb'],
  target: ['request_uri', 'uri', 'path', 'url'],
  host: ['host', 'http_host', 'authority'],
  client: ['client', 'client_id', 'consumer', 'remote_user', 'user'],
  ip: ['ip', 'remote_addr', 'client_ip', 'clientip', 'remote_ip'],
  status: ['status', 'status_code', 'response_code', 'response'],
} as const
const MS_NAMES = ['durationMs', 'duration_ms'] as const
const SECONDS_NAME = 'request_time'

/**
 * Reads JSON lines with the usual names. A member `request` may be the request line. A path must be
 * as it was received.
 */
export const readJsonLog = readerOfObjects((line) => {
  const request = textOrNone(line['request'])
  const parts = request?.includes(' ') === true ? requestLine(request) : undefined
  const [method, target] = [parts?.method ?? textOf(line, 'method'), parts?.target ?? textOf(line, 'target')]
  const time = valueOf(line, NAMES.time)
  if (time === undefined) return unreadable(`has no time: none of ${NAMES.time.join(', ')}`)
  if (parts === undefined && method === undefined)
    return unreadable(`has no method: none of ${NAMES.method.join(', ')}, and no request line in request`)
  if (parts === undefined && target === undefined)
    return unreadable(`has no path: none of ${NAMES.target.join(', ')}, and no request line in request`)
  return callOf({
    time,
    tookMs: tookMs(line),
    method,
    target,
    host: textOf(line, 'host'),
    client: textOf(line, 'client'),
    ip: addressOf(valueOf(line, NAMES.ip)),
    status: Number(valueOf(line, NAMES.status)),
  })
})

const valueOf = (line: JsonObject, names: readonly string[]): unknown => {
  const name = names.find((one) => line[one] !== undefined)
  return name === undefined ? undefined : line[name]
}

const textOf = (line: JsonObject, part: keyof typeof NAMES): string | undefined =>
  textOrNone(valueOf(line, NAMES[part]))

const tookMs = (line: JsonObject): number =>
  Number(valueOf(line, MS_NAMES) ?? Number(line[SECONDS_NAME] ?? 0) * 1000)
