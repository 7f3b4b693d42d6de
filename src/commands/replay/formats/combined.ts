import { addressOf, callOf, type Line, requestLine, textOrNone, unreadable } from './call.ts'
import { splitFields, unescaped, withoutPrefix } from './fields.ts'
import { commonInstant } from './instant.ts'

/** Maximum fields before the time: a virtual host, address, identity, and a user with blanks. */
const MAX_BEFORE_TIME = 12
const TOOK = /^(\d{1,9})ms$/

/**
 * Reads the common and the combined log format, of Apache, nginx and many others, also after the
 * virtual host: address, identity, user, [time], "request", status.
 */
export const readCombined = (text: string): Line => callOfFields(splitFields(withoutPrefix(text)))

/** Reads Traefik's own form of it, which ends with the duration. */
export function readCombinedWithDuration(text: string): Line {
  const fields = splitFields(text)
  const [, tookMs] = TOOK.exec(fields.at(-1) ?? '') ?? []
  return tookMs === undefined
    ? unreadable('does not end with a duration such as 12ms')
    : callOfFields(fields, { tookMs: Number(tookMs), isArrival: true })
}

function callOfFields(
  fields: readonly string[],
  timing: { tookMs?: number; isArrival?: boolean } = {},
): Line {
  const timeAt = fields.findIndex(
    (field, i) => i >= 3 && i <= MAX_BEFORE_TIME && !Number.isNaN(commonInstant(field)),
  )
  if (timeAt === -1 || fields.length < timeAt + 3)
    return unreadable('is not of the form: address, identity, user, [time], "request", status')
  const addressAt = addressOf(fields[0]) === undefined && addressOf(fields[1]) !== undefined ? 1 : 0
  const [time, request, status] = fields.slice(timeAt)
  if (!/^\d{3}$/.test(status!)) return unreadable('has no status after its request')
  return callOf({
    ...timing,
    time,
    ...requestLine(unescaped(request!)),
    host: addressAt === 1 ? hostOf(fields[0]!) : undefined,
    // A user may contain blanks.
    client: textOrNone(fields.slice(addressAt + 2, timeAt).join(' ')),
    ip: addressOf(fields[addressAt]),
    status: Number(status),
  })
}

const hostOf = (virtualHost: string): string => virtualHost.replace(/:\d{1,5}$/, '')
