import type { Calendar, Period } from '../limit/quota.ts'
import { search } from '../runtime/hot-path.ts'

/** The units of a calendar, with the longest possible period of each in milliseconds. */
export const UNITS_MS = {
  minute: 60_000,
  hour: 3_600_000,
  day: 90_000_000,
  month: 31 * 86_400_000 + 3_600_000,
}
export type Unit = keyof typeof UNITS_MS

/** A unit of the calendar of an IANA time zone. */
export interface CalendarName {
  readonly unit: Unit
  readonly timezone: string
}

/** Formats a calendar, such as `a calendar month (Europe/Lisbon)`. */
export const formatCalendar = ({ unit, timezone }: CalendarName): string =>
  `${unit === 'hour' ? 'an' : 'a'} calendar ${unit} (${timezone})`

const MONTH = { era: 'short', year: 'numeric', month: 'numeric' } as const
const DAY = { ...MONTH, day: 'numeric' } as const
const HOUR = { ...DAY, hour: 'numeric', hourCycle: 'h23', timeZoneName: 'longOffset' } as const
/** Fields of a date that together name a period of each unit. */
const FIELDS = { month: MONTH, day: DAY, hour: HOUR, minute: { ...HOUR, minute: 'numeric' } } as const

/** Creates the calendar of an IANA time zone; throws a RangeError for another name. An hour that summer time repeats is two hours. */
export function createCalendar(unit: Unit, timezone: string): Calendar & CalendarName {
  const { format } = new Intl.DateTimeFormat('en', { timeZone: timezone, ...FIELDS[unit] })
  let last: Period = { startMs: 0, endMs: 0 }

  /** Returns the distance from `fromMs` to the nearest instant, in steps of `sign`, at which another period is. */
  function distance(fromMs: number, sign: 1 | -1): number {
    const name = format(fromMs)
    return search(1, UNITS_MS[unit] + 1, (ms) => format(fromMs + sign * ms) !== name)
  }

  return {
    unit,
    timezone,
    periodAt(epochMs) {
      if (epochMs < last.startMs || epochMs >= last.endMs) {
        const atMs = Math.floor(epochMs)
        last = { startMs: atMs - distance(atMs, -1) + 1, endMs: atMs + distance(atMs, 1) }
      }
      return last
    },
  }
}
