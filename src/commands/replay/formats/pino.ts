import { isObject, type JsonObject } from '../../../runtime/json.ts'
import { addressOf, callOf, type ReadLine, unreadable } from './call.ts'
import { objectOf, readerOfObjects, stringOf } from './objects.ts'

/** Maximum requests whose end is awaited; more are of programs that have died. */
const MAX_AWAITED = 100_000

/**
 * Creates a reader of what pino-http logs at the end of a request, and of Fastify's two lines: one with
 * the request when it comes, and one with the response, which names it by `reqId`. `remoteAddress` is
 * that of the connection, and `responseTime` is in milliseconds.
 */
export function createPinoReader(): ReadLine {
  const awaited = new Map<string, JsonObject>()

  function take(id: string): JsonObject | undefined {
    const request = awaited.get(id)
    awaited.delete(id)
    return request
  }

  return readerOfObjects((line) => {
    const { req, res, reqId, pid } = line
    // Two processes may use the same id.
    const id = typeof reqId === 'string' ? `${String(pid)} ${reqId}` : undefined
    if (!isObject(res)) {
      if (id !== undefined && isObject(req) && awaited.size < MAX_AWAITED) awaited.set(id, req)
      return 'other'
    }
    const earlier = id === undefined ? undefined : take(id)
    const request = isObject(req) ? req : earlier
    if (request === undefined)
      return id === undefined ? 'other' : unreadable('ends a request whose first line is not in the log')
    return callOf({
      time: line['time'],
      tookMs: Number(line['responseTime']),
      method: stringOf(request, 'method'),
      target: stringOf(request, 'url'),
      host: hostOf(request),
      ip: addressOf(request['remoteAddress']),
      status: Number(res['statusCode']),
    })
  })
}

/** Returns the `Host` of a request; Fastify writes it as `host`, before version 5 as `hostname`. */
const hostOf = (request: JsonObject): string | undefined =>
  stringOf(objectOf(request, 'headers'), 'host') ?? stringOf(request, 'host') ?? stringOf(request, 'hostname')
