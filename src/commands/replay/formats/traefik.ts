import { addressOf, callOf, type Line, textOrNone } from './call.ts'
import { readCombinedWithDuration } from './combined.ts'
import { readerOfObjects, stringOf } from './objects.ts'

/** Reads the access log of Traefik, in JSON or in its common log format. */
export const readTraefik = (text: string): Line =>
  text.trimStart().startsWith('{') ? readJson(text) : readCombinedWithDuration(text)

/** `Duration` is in nanoseconds. */
const readJson = readerOfObjects((line) => {
  if (line['RequestMethod'] === undefined && line['RequestPath'] === undefined) return 'other'
  return callOf({
    time: line['StartUTC'] ?? line['StartLocal'] ?? line['time'],
    isArrival: line['StartUTC'] !== undefined || line['StartLocal'] !== undefined,
    tookMs: Number(line['Duration']) / 1e6,
    method: stringOf(line, 'RequestMethod'),
    target: stringOf(line, 'RequestPath'),
    host: textOrNone(line['RequestHost']),
    client: textOrNone(line['ClientUsername']),
    ip: addressOf(line['ClientHost']),
    status: Number(line['DownstreamStatus']),
  })
})
