import { type CalendarName, DAYS } from '../../../src/policy/calendar.ts'
import { halfOf } from '../halves.ts'
import { serverMicroseconds } from '../time.ts'
import { type Case, clockSteps, overlapping } from './evidence.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const MINUTE_MS = 60_000
const formats = new Map<string, Intl.DateTimeFormat>()

/** Returns the milliseconds by which a time zone is ahead of UTC, which change on a whole minute. */
function offsetMs(timezone: string, epochMs: number): number {
  let format = formats.get(timezone)
  if (format === undefined) {
    format = new Intl.DateTimeFormat('en', { timeZone: timezone, timeZoneName: 'longOffset' })
    formats.set(timezone, format)
  }
  const name = format.formatToParts(epochMs).find(({ type }) => type === 'timeZoneName')!.value
  const [, sign = '+', hours = '0', minutes = '0'] = /^GMT(?:([+-])(\d+):(\d+))?$/.exec(name) ?? []
  return (sign === '-' ? -1 : 1) * (Number(hours) * HOUR_MS + Number(minutes) * MINUTE_MS)
}

/** Returns the instant on the clock of a client's Redis, in epoch milliseconds. */
function serverDate({ history, client }: Case, worldMs: number): number {
  const { actions, aheadMs, shiftMs = 0, isCluster } = history
  const half = isCluster ? halfOf(`{${client}}`) : 0
  const steps = actions.filter(({ kind, atMs }) => kind === 'clock' && atMs <= worldMs)
  const byMs = steps.reduce(
    (sum, step) => sum + (step.kind === 'clock' && (!isCluster || step.half === half) ? step.byMs : 0),
    0,
  )
  return Math.floor(serverMicroseconds(worldMs, aheadMs + shiftMs + byMs) / 1000)
}

/** Names the period of a local date and time, whose fields are those of UTC. */
function localPeriod({ unit, firstDay = 'monday' }: CalendarName, local: Date): string {
  const [year, month] = [local.getUTCFullYear(), local.getUTCMonth()]
  if (unit === 'year') return String(year)
  if (unit === 'quarter') return `${year} ${Math.floor(month / 3)}`
  if (unit === 'month') return `${year} ${month}`
  const days = Math.floor(local.getTime() / DAY_MS)
  // 1970-01-05 was a Monday.
  return String(unit === 'day' ? days : Math.floor((days - 4 - DAYS.indexOf(firstDay)) / 7))
}

const known = new WeakMap<Case, Map<number, string | undefined>>()

/**
 * Names the calendar period of an instant; undefined if a gateway may not know it: Redis's clock was
 * set while it was without Redis, or it has started without Redis, whose clock differs from its own.
 */
export function periodOf(one: Case, worldMs: number): string | undefined {
  const periods = known.get(one) ?? new Map<number, string | undefined>()
  known.set(one, periods)
  if (!periods.has(worldMs)) periods.set(worldMs, findPeriod(one, worldMs))
  return periods.get(worldMs)
}

function findPeriod(one: Case, worldMs: number): string | undefined {
  const { actions, aheadMs } = one.history
  const starts = actions.flatMap(({ kind, atMs, ms }) => (kind === 'replace' && aheadMs > 0 ? atMs + ms : []))
  const isUnsure = overlapping(one.troubles, worldMs, worldMs).some(
    ({ fromMs, toMs }) =>
      clockSteps(one, fromMs, toMs).length > 0 || starts.some((at) => at >= fromMs && at <= toMs),
  )
  if (isUnsure || clockSteps(one, worldMs, worldMs).length > 0) return undefined
  const { windowMs, calendar } = one.history.limits[one.name]
  const atMs = serverDate(one, worldMs)
  if (calendar === undefined || calendar.unit === 'minute') return String(Math.floor(atMs / windowMs))
  const offset = offsetMs(calendar.timezone, atMs)
  // An hour that summer time repeats is two hours.
  if (calendar.unit === 'hour') return `${Math.floor((atMs + offset) / HOUR_MS)} ${offset}`
  return localPeriod(calendar, new Date(atMs + offset))
}
