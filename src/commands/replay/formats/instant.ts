const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const ISO_DATE = /^\d{4}-\d\d-\d\d[T ]/
const EPOCH = /^\d{9,19}(?:\.\d{1,9})?$/
/** The time of the common log format, which HAProxy writes with milliseconds and without a zone. */
const COMMON = /^(\d\d)\/([A-Z][a-z]{2})\/(\d{4}):(\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?: ([+-])(\d\d)(\d\d))?$/
/** Upper bounds of epoch seconds, milliseconds and microseconds between 1973 and 5138. */
const [MAX_SECONDS, MAX_MS, MAX_US] = [1e11, 1e14, 1e17]

/**
 * Reads an instant of a log to epoch milliseconds: ISO 8601, epoch seconds, milliseconds, micro- or
 * nanoseconds, or the common log format. Without a zone, it is a local time of this process (`TZ`).
 * NaN if it is none of these.
 */
export function readInstant(value: unknown): number {
  if (typeof value === 'number') return epochMsOf(value)
  if (typeof value !== 'string') return Number.NaN
  if (ISO_DATE.test(value)) return Date.parse(value)
  return EPOCH.test(value) ? epochMsOf(Number(value)) : commonInstant(value)
}

function epochMsOf(epoch: number): number {
  if (epoch < MAX_SECONDS) return epoch * 1000
  if (epoch < MAX_MS) return epoch
  return epoch < MAX_US ? epoch / 1000 : epoch / 1e6
}

/** Reads the time of the common log format to epoch milliseconds; NaN if it is not one. */
export function commonInstant(text: string): number {
  const [, day, name = '', year, hour, minute, second, sign, zoneHours, zoneMinutes] = COMMON.exec(text) ?? []
  const month = MONTHS.indexOf(name)
  if (month === -1) return Number.NaN
  const date = [Number(year), month, Number(day), Number(hour), Number(minute)] as const
  const ms = Math.round(Number(second) * 1000)
  if (sign === undefined) return new Date(...date, 0, ms).getTime()
  const zoneMs = (Number(zoneHours) * 60 + Number(zoneMinutes)) * 60_000
  return Date.UTC(...date, 0, ms) - (sign === '-' ? -zoneMs : zoneMs)
}
