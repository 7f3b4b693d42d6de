import { addressOf, callOf } from './call.ts'
import { isObject } from '../../../runtime/json.ts'
import { objectOf, readerOfObjects, stringOf } from './objects.ts'

/**
 * Reads what pino-http logs at the end of a request. `remoteAddress` is that of the connection, and
 * `responseTime` is in milliseconds.
 */
export const readPino = readerOfObjects((line) => {
  const { req, res } = line
  if (!isObject(req) || !isObject(res)) return 'other'
  return callOf({
    time: line['time'],
    tookMs: Number(line['responseTime']),
    method: stringOf(req, 'method'),
    target: stringOf(req, 'url'),
    host: stringOf(objectOf(req, 'headers'), 'host'),
    ip: addressOf(req['remoteAddress']),
    status: Number(res['statusCode']),
  })
})
