import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCalendar, formatCalendar, UNITS_MS, DAYS } from '../../src/policy/calendar.ts'
import type { CalendarName, Unit } from '../../src/policy/calendar.ts'

const HOUR_MS = 3_600_000
const LISBON = { timezone: 'Europe/Lisbon' } as const
const SANTIAGO = { timezone: 'America/Santiago', firstDay: 'sunday' } as const

/** Returns the start of a period and its length in hours. */
function periodOf(name: CalendarName, at: string): readonly [start: string, hours: number] {
  const { startMs, endMs } = createCalendar(name).periodAt(Date.parse(at))
  return [new Date(startMs).toISOString(), (endMs - startMs) / HOUR_MS]
}

describe('a calendar', () => {
  it.each<readonly [string, CalendarName, at: string, start: string, hours: number]>([
    ...(
      [
        ['of UTC', {}, '2026-11-27T06:00Z', '2026-11-23T00:00:00.000Z', 168],
        ['in its first millisecond', {}, '2026-11-23T00:00Z', '2026-11-23T00:00:00.000Z', 168],
        ['in its last millisecond', {}, '2026-11-22T23:59:59.999Z', '2026-11-16T00:00:00.000Z', 168],
        ['over New Year', {}, '2027-01-01T00:00Z', '2026-12-28T00:00:00.000Z', 168],
        ['with a leap day', {}, '2028-02-29T12:00Z', '2028-02-28T00:00:00.000Z', 168],
        ['before 1970', {}, '1969-12-31T00:00Z', '1969-12-29T00:00:00.000Z', 168],
        ['that is an hour shorter', LISBON, '2026-03-29T12:00Z', '2026-03-23T00:00:00.000Z', 167],
        ['that is an hour longer', LISBON, '2026-10-25T12:00Z', '2026-10-18T23:00:00.000Z', 169],
        [
          'from Sunday, the change in the next week',
          { ...LISBON, firstDay: 'sunday' },
          '2026-03-28T12:00Z',
          '2026-03-22T00:00:00.000Z',
          168,
        ],
        [
          'from Sunday, the change on its first day',
          { ...LISBON, firstDay: 'sunday' },
          '2026-03-29T00:00Z',
          '2026-03-29T00:00:00.000Z',
          167,
        ],
        ['whose first day begins at 1:00', SANTIAGO, '2026-09-06T12:00Z', '2026-09-06T04:00:00.000Z', 167],
        [
          'that is two hours longer',
          { timezone: 'Antarctica/Troll' },
          '2026-10-18T22:00Z',
          '2026-10-18T22:00:00.000Z',
          170,
        ],
        ['whose last hour is repeated', SANTIAGO, '2026-04-04T12:00Z', '2026-03-29T03:00:00.000Z', 169],
        [
          'from Friday, where that day was skipped',
          { timezone: 'Pacific/Apia', firstDay: 'friday' },
          '2011-12-31T12:00Z',
          '2011-12-30T10:00:00.000Z',
          144,
        ],
      ] as const
    ).map(
      ([title, name, ...rest]) =>
        [`a week ${title}`, { unit: 'week', timezone: 'UTC', ...name }, ...rest] as const,
    ),
    [
      'a quarter of UTC',
      { unit: 'quarter', timezone: 'UTC' },
      '2026-06-30T23:59:59.999Z',
      '2026-04-01T00:00:00.000Z',
      91 * 24,
    ],
    [
      'a quarter with a leap day',
      { unit: 'quarter', timezone: 'UTC' },
      '2028-02-29T00:00Z',
      '2028-01-01T00:00:00.000Z',
      91 * 24,
    ],
    [
      'a quarter that is an hour shorter',
      { unit: 'quarter', ...LISBON },
      '2026-03-31T22:00Z',
      '2026-01-01T00:00:00.000Z',
      90 * 24 - 1,
    ],
    [
      'a quarter that is an hour longer',
      { unit: 'quarter', ...LISBON },
      '2026-12-31T23:00Z',
      '2026-09-30T23:00:00.000Z',
      92 * 24 + 1,
    ],
    [
      'a year of UTC',
      { unit: 'year', timezone: 'UTC' },
      '2026-11-27T06:00Z',
      '2026-01-01T00:00:00.000Z',
      365 * 24,
    ],
    ['a leap year', { unit: 'year', ...LISBON }, '2028-12-31T23:00Z', '2028-01-01T00:00:00.000Z', 366 * 24],
    [
      'a year that is not a leap year',
      { unit: 'year', ...LISBON },
      '2100-02-28T23:00Z',
      '2100-01-01T00:00:00.000Z',
      365 * 24,
    ],
    [
      'a year of the south, in summer time',
      { unit: 'year', timezone: 'Australia/Sydney' },
      '2028-12-31T12:59:59.999Z',
      '2027-12-31T13:00:00.000Z',
      366 * 24,
    ],
    [
      'a year in which a zone gave up an hour',
      { unit: 'year', timezone: 'Asia/Almaty' },
      '2024-12-31T00:00Z',
      '2023-12-31T18:00:00.000Z',
      366 * 24 + 1,
    ],
  ])('a calendar has %s', (_, name, at, start, hours) => {
    expect(periodOf(name, at)).toEqual([start, hours])
  })

  it('a calendar has periods without gaps, that begin where the local date does', () => {
    const zones = Intl.supportedValuesOf('timeZone').filter((zone) => !zone.startsWith('Antarctica/'))
    const units = Object.keys(UNITS_MS) as Unit[]
    const instants = fc.integer({ min: Date.UTC(2015), max: Date.UTC(2045) })
    const days = fc.constantFrom(...DAYS)
    fc.assert(
      fc.property(
        fc.constantFrom(...zones),
        fc.constantFrom(...units),
        instants,
        days,
        (timezone, unit, at, firstDay) => {
          const name = { unit, timezone, ...(unit === 'week' && { firstDay }) }
          const calendar = createCalendar(name)
          const { startMs, endMs } = calendar.periodAt(at)
          expect(startMs).toBeLessThanOrEqual(at)
          expect(endMs).toBeGreaterThan(at)
          expect(endMs - startMs).toBeLessThanOrEqual(UNITS_MS[unit])
          // Another calendar, as each remembers its last period.
          const other = createCalendar(name)
          expect(other.periodAt(startMs)).toEqual({ startMs, endMs })
          expect(other.periodAt(endMs - 1)).toEqual({ startMs, endMs })
          expect(other.periodAt(endMs).startMs).toBe(endMs)
          expect(other.periodAt(startMs - 1).endMs).toBe(startMs)
          if (unit === 'minute' || unit === 'hour') return
          const local = new Intl.DateTimeFormat('en', {
            ...{ timeZone: timezone, weekday: 'long' },
            ...{ day: 'numeric', month: 'numeric' },
          })
          const fields = (ms: number) =>
            Object.fromEntries(local.formatToParts(ms).map(({ type, value }) => [type, value]))
          const first = fields(startMs)
          expect(fields(startMs - 1)).not.toEqual(first)
          if (unit === 'week') expect(first['weekday']!.toLowerCase()).toBe(firstDay)
          else if (unit !== 'day') expect(first['day']).toBe('1')
          if (unit === 'quarter') expect(['1', '4', '7', '10']).toContain(first['month'])
          if (unit === 'year') expect(first['month']).toBe('1')
        },
      ),
      { numRuns: 500 },
    )
  })

  it('a calendar is written with the first day of its weeks', () => {
    expect(formatCalendar({ unit: 'hour', timezone: 'UTC' })).toBe('hour (UTC)')
    expect(formatCalendar({ unit: 'week', timezone: 'UTC', firstDay: 'sunday' })).toBe(
      'week from sunday (UTC)',
    )
  })
})
