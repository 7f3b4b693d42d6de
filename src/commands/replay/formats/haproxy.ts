import { addressOf, callOf, type Line, requestLine, unreadable } from './call.ts'
import { splitFields, withoutPrefix } from './fields.ts'
import { commonInstant } from './instant.ts'

/** The fields of `option httplog` before captured headers. The request is the only field in quotes. */
const [CLIENT, ACCEPTED, TIMERS, STATUS] = [0, 1, 4, 5]
const ENCODED = /#([0-9A-F]{2})/g

/**
 * Reads the HTTP log of HAProxy (`option httplog`). Its times are local ones of HAProxy, without a
 * zone. The last timer is the whole duration in milliseconds.
 */
export function readHaproxy(text: string): Line {
  const fields = splitFields(withoutPrefix(text))
  if (Number.isNaN(commonInstant(fields[ACCEPTED] ?? ''))) return 'other'
  const [timers = '', status = ''] = [fields[TIMERS], fields[STATUS]]
  if (!/^-?\d+$/.test(status)) return unreadable('has no status at the place of "option httplog"')
  const [, request = '', ...rest] = text.split('"')
  if (rest.length !== 1) return unreadable('ends within its request; give the log a larger "len"')
  return callOf({
    time: fields[ACCEPTED],
    isArrival: true,
    tookMs: Number(timers.split('/').at(-1)!.replace('+', '')),
    ...requestLine(decoded(request)),
    ip: addressOf(fields[CLIENT], true),
    status: Number(status),
  })
}

/** Decodes `#22`, by which HAProxy writes a quote. */
const decoded = (request: string): string =>
  request.replaceAll(ENCODED, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
