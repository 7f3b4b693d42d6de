import { addressOf, callOf, textOrNone } from './call.ts'
import { readDuration } from './duration.ts'
import { objectOf, readerOfObjects, stringOf } from './objects.ts'

/** Reads the access log of Caddy 2. `client_ip` considers its trusted proxies. */
export const readCaddy = readerOfObjects((line) => {
  const request = objectOf(line, 'request')
  if (line['msg'] !== 'handled request' && request['uri'] === undefined) return 'other'
  return callOf({
    time: instantOf(line['ts']),
    tookMs: durationMs(line['duration']),
    method: stringOf(request, 'method'),
    target: stringOf(request, 'uri'),
    host: stringOf(request, 'host'),
    client: textOrNone(line['user_id']),
    ip:
      addressOf(request['client_ip']) ??
      addressOf(request['remote_ip']) ??
      addressOf(request['remote_addr'], true),
    status: Number(line['status']),
  })
})

/** A time of `time_format wall`, which is UTC unless `time_local` is set. */
const WALL = /^(\d{4})\/(\d\d)\/(\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)$/

const instantOf = (ts: unknown): unknown => (typeof ts === 'string' ? ts.replace(WALL, '$1-$2-$3T$4Z') : ts)

/** A duration is a fraction of seconds, a whole number of nanoseconds (`duration_format nano`), or a text. */
const durationMs = (duration: unknown): number =>
  Number.isInteger(duration) ? Number(duration) / 1e6 : readDuration(duration)
