import { addressOf, callOf, type Line, requestLine, unreadable } from './call.ts'
import { splitFields } from './fields.ts'

/** The documented order of the fields. The last of these is there unless the line is cut in its request. */
const NAMES = [
  ...['type', 'time', 'elb', 'client:port', 'target:port', 'request_processing_time'],
  ...['target_processing_time', 'response_processing_time', 'elb_status_code', 'target_status_code'],
  ...['received_bytes', 'sent_bytes', 'request', 'user_agent'],
]
const placeOf = (name: string): number => NAMES.indexOf(name)
const [TYPE, TIME, CLIENT] = [placeOf('type'), placeOf('time'), placeOf('client:port')]
const [STATUS, REQUEST] = [placeOf('elb_status_code'), placeOf('request')]
/** Seconds, or -1. */
const DURATIONS = NAMES.filter((name) => name.endsWith('_processing_time')).map(placeOf)
const TYPES = new Set(['http', 'https', 'h2', 'grpcs', 'ws', 'wss'])
const URL_PARTS = /^[a-z]{2,5}:\/\/([^/?#]*)(.*)$/

/** Reads the access log of AWS's Application Load Balancer. `time` is that of the response. */
export function readAlb(text: string): Line {
  const fields = splitFields(text)
  if (!TYPES.has(fields[TYPE] ?? '') || fields.length < NAMES.length)
    return unreadable('does not have the fields of a load balancer in their order')
  const { method, target } = requestLine(fields[REQUEST])
  const [, host, path] = URL_PARTS.exec(target ?? '') ?? []
  return callOf({
    time: fields[TIME],
    tookMs: DURATIONS.reduce((sum, place) => sum + Math.max(0, Number(fields[place])) * 1000, 0),
    method,
    target: path === undefined || path.startsWith('/') ? path : `/${path}`,
    host,
    ip: addressOf(fields[CLIENT], true),
    status: Number(fields[STATUS]),
  })
}
