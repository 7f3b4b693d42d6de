import { addressOf, callOf, textOrNone } from './call.ts'
import { readDuration } from './duration.ts'
import { objectOf, readerOfObjects, stringOf } from './objects.ts'

/** Reads the access log of Caddy 2. `client_ip` considers its trusted proxies. Durations are seconds, or texts. */
export const readCaddy = readerOfObjects((line) => {
  const request = objectOf(line, 'request')
  if (line['msg'] !== 'handled request' && request['uri'] === undefined) return 'other'
  return callOf({
    time: line['ts'],
    tookMs: readDuration(line['duration']),
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
