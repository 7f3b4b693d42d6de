import type { Calendar, Period } from '../limit/quota.ts'
import { search } from '../runtime/search.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 86_400_000

/**
 * The units of a calendar, with the longest possible period of each in milliseconds: from a day on,
 * summer time may end in it, by which clocks are set back two hours at most (Antarctica/Troll).
 */
export const UNITS_MS = {
  minute: 60_000,
  hour: HOUR_MS,
  day: DAY_MS + 2 * HOUR_MS,
  week: 7 * DAY_MS + 2 * HOUR_MS,
  month: 31 * DAY_MS + 2 * HOUR_MS,
  quarter: 92 * DAY_MS + 2 * HOUR_MS,
  year: 366 * DAY_MS + 2 * HOUR_MS,
}
export type Unit = keyof typeof UNITS_MS

/** The days of a week. The epoch began on the fourth. */
export const DAYS = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'] as const
const EPOCH_DAY = DAYS.indexOf('thursday')

/** A unit of the calendar of an IANA time zone. */
export interface CalendarName {
  readonly unit: Unit
  readonly timezone: string
  /** The first day of a week; absent from other units. */
  readonly firstDay?: (typeof DAYS)[number]
}

/**
 * Formats the period of a calendar, such as `month (Europe/Lisbon)` or `week from monday (UTC)`.
 */
export const formatCalendar = ({ unit, timezone, firstDay }: CalendarName): string =>
  `${unit}${firstDay === undefined ? '' : ` from ${firstDay}`} (${timezone})`

const DATE = { year: 'numeric', month: 'numeric', day: 'numeric' } as const
const HOUR = { ...DATE, hour: 'numeric', hourCycle: 'h23', timeZoneName: 'longOffset' } as const
/** Fields of a date and time that together name an hour or a minute. */
const FIELDS = { hour: HOUR, minute: { ...HOUR, minute: 'numeric' } } as const

/**
 * Returns a function that names the period of an instant. Instants of the same period have the same
 * name.
 */
function createNames({ unit, timezone, firstDay = 'monday' }: CalendarName) {
  const fields = unit === 'hour' || unit === 'minute' ? FIELDS[unit] : {}
  const { format } = new Intl.DateTimeFormat('en', { timeZone: timezone, ...fields })
  /**
   * Returns the local date of an instant, which is formatted as `12/31/2026`, as a count of days
   * and one of months.
   */
  function date(epochMs: number) {
    const [month, day, year] = format(epochMs).split('/').map(Number) as [number, number, number]
    // oxlint-disable-next-line no-restricted-globals -- a calculation that reads no clock
    return { days: Date.UTC(year, month - 1, day) / DAY_MS, months: year * 12 + month - 1 }
  }
  const daysBefore = EPOCH_DAY - DAYS.indexOf(firstDay)
  const names: Readonly<Record<Unit, (epochMs: number) => string | number>> = {
    minute: format,
    hour: format,
    day: (epochMs) => date(epochMs).days,
    week: (epochMs) => Math.floor((date(epochMs).days + daysBefore) / 7),
    month: (epochMs) => date(epochMs).months,
    quarter: (epochMs) => Math.floor(date(epochMs).months / 3),
    year: (epochMs) => Math.floor(date(epochMs).months / 12),
  }
  return names[unit]
}

/**
 * Creates the calendar of an IANA time zone; throws a RangeError for another name. An hour that
 * summer time repeats is two hours.
 */
export function createCalendar(name: CalendarName): Calendar & CalendarName {
  const nameAt = createNames(name)
  let last: Period = { startMs: 0, endMs: 0 }

  /**
   * Returns the distance from `fromMs` to the nearest instant, in steps of `sign`, at which another
   * period is.
   */
  function distance(fromMs: number, sign: 1 | -1): number {
    const here = nameAt(fromMs)
    return search(1, UNITS_MS[name.unit] + 1, (ms) => nameAt(fromMs + sign * ms) !== here)
  }

  return {
    ...name,
    periodAt(epochMs) {
      if (epochMs < last.startMs || epochMs >= last.endMs) {
        const atMs = Math.floor(epochMs)
        last = { startMs: atMs - distance(atMs, -1) + 1, endMs: atMs + distance(atMs, 1) }
      }
      return last
    },
  }
}
