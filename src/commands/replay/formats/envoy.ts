import type { JsonObject } from '../../../runtime/json.ts'
import { addressOf, callOf, type Line, requestLine, textOrNone, unreadable } from './call.ts'
import { splitFields, withoutPrefix } from './fields.ts'
import { readerOfObjects, stringOf } from './objects.ts'

/** The start of both formats: Envoy's default and Istio's. */
const START = ['start_time', 'request', 'response_code', 'response_flags']
const DETAILS = [
  'response_code_details',
  'connection_termination_details',
  'upstream_transport_failure_reason',
]
const REST = [
  ...['bytes_received', 'bytes_sent', 'duration', 'upstream_service_time', 'x_forwarded_for', 'user_agent'],
  ...['request_id', 'authority', 'upstream_host', 'upstream_cluster', 'upstream_local_address'],
  ...['downstream_local_address', 'downstream_remote_address'],
]
const DEFAULT = [...START, ...REST]
const ISTIO = [...START, ...DETAILS, ...REST]
const DIGITS = /^\d+$/

/** Reads the access log of Envoy: its default format, that of Istio, or JSON with these names. */
export const readEnvoy = (text: string): Line =>
  text.trimStart().startsWith('{') ? readJson(text) : readText(withoutPrefix(text))

function readText(text: string): Line {
  if (!text.startsWith('[')) return unreadable('does not begin with a time in brackets')
  // A line of Envoy's process log.
  if (/^\[[^\]]{1,40}\]\[/.test(text)) return 'other'
  const fields = splitFields(text)
  if (!DIGITS.test(fields[2] ?? '')) return unreadable('has no status after its time and request')
  const names = DIGITS.test(fields[4] ?? '') ? DEFAULT : ISTIO
  // A line that is cut before it may have a part of an address.
  if (fields.length <= names.indexOf('user_agent')) return unreadable('ends before its user agent')
  return callOfNamed(Object.fromEntries(names.map((name, i) => [name, fields[i]])))
}

const readJson = readerOfObjects((line) =>
  line['start_time'] === undefined && line['response_code'] === undefined ? 'other' : callOfNamed(line),
)

/** The duration is in milliseconds. Envoy appends the address of its peer to `x-forwarded-for`. */
function callOfNamed(line: JsonObject): Line {
  const { method, target } =
    line['request'] === undefined
      ? { method: stringOf(line, 'method'), target: stringOf(line, 'path') }
      : requestLine(stringOf(line, 'request'))
  const appended = textOrNone(line['x_forwarded_for'])?.split(',').at(-1)?.trim()
  return callOf({
    time: line['start_time'],
    isArrival: true,
    tookMs: Number(line['duration']),
    method,
    target,
    host: textOrNone(line['authority']),
    ip: addressOf(appended) ?? addressOf(line['downstream_remote_address'], true),
    status: Number(line['response_code']),
  })
}
