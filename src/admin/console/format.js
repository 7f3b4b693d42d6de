/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {import('../requests/counters.ts').CallerUsage} CallerUsage */

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const TENTHS = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 })

/** Seconds without a failure that separate failures. */
const PAUSE_SECONDS = 10

/** @param {number} value */
export const whole = (value) => WHOLE.format(value)

/** @param {number} value per second */
export function rateText(value) {
  if (value === 0) return '0'
  return value < 0.05 ? '<0.1' : value < 100 ? TENTHS.format(value) : WHOLE.format(value)
}

/**
 * Returns a time of day, with the date unless it is today's.
 * @param {string | number} instant
 */
export function time(instant) {
  const at = new Date(instant)
  const clock = at.toLocaleTimeString('en-GB')
  return at.toDateString() === new Date().toDateString()
    ? clock
    : `${at.toLocaleDateString('en-CA')} ${clock}`
}

/**
 * Returns the time and the values of a second of series that end at an instant.
 * @param {import('./chart.js').Series} series
 * @param {string} end
 * @param {number} i
 */
export function valuesAt({ calls, refused, failed }, end, i) {
  const values = [pluralize(calls[i] ?? 0, 'call'), `${whole(refused[i] ?? 0)} refused`]
  if (failed !== undefined) values.push(`${whole(failed[i] ?? 0)} failed`)
  return `${timeAt(calls.length, end, i)}: ${values.join(', ')}`
}

/**
 * Returns the time at which a second of series began.
 * @param {number} length of the series
 * @param {string} end
 * @param {number} i
 */
const timeAt = (length, end, i) => time(Date.parse(end) - (length - i) * 1000)

/**
 * Says when the latest calls failed that have no pause of ten seconds between them; empty if none did.
 * @param {readonly number[]} failed in each second until `end`, oldest first
 * @param {string} end
 * @returns {[text: string, className: string]}
 */
export function failures(failed, end) {
  const last = failed.findLastIndex((count) => count > 0)
  if (last === -1) return ['', '']
  let first = last
  for (let i = last; i >= Math.max(0, first - PAUSE_SECONDS); i--) if ((failed[i] ?? 0) > 0) first = i
  // An earlier failure may have left the series.
  const since = `${timeAt(failed.length, end, first)}${first < PAUSE_SECONDS ? ' or earlier' : ''}`
  if (failed.length - last <= PAUSE_SECONDS) return [`Failures since ${since}.`, 'refused']
  return [`Failures from ${since} to ${timeAt(failed.length, end, last)}.`, 'near']
}

/**
 * Returns a short duration with two or three digits, such as `3.2 ms`.
 * @param {number} value in milliseconds
 */
export const milliseconds = (value) =>
  value >= 1000
    ? `${TENTHS.format(value / 1000)} s`
    : `${value < 10 ? TENTHS.format(value) : WHOLE.format(value)} ms`

/** @type {readonly (readonly [string, number])[]} */
const UNITS = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
]

/**
 * Returns a duration in its two largest units, such as `1 h 5 min`.
 * @param {number} seconds
 */
export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`
  let rest = Math.ceil(seconds)
  const parts = UNITS.flatMap(([unit, length]) => {
    const count = Math.floor(rest / length)
    rest -= count * length
    return count > 0 ? [`${count} ${unit}`] : []
  })
  return parts.slice(0, 2).join(' ')
}

/**
 * Returns the window of a limit, such as `1 min` or `week from monday (UTC)`; calls at once have none.
 * @param {Pick<Overview['limits'][number], 'windowSeconds' | 'calendar'>} limit
 */
export function formatWindow({ windowSeconds, calendar }) {
  if (windowSeconds === undefined) return 'at once'
  if (calendar === undefined) return duration(windowSeconds)
  const { unit, timezone, firstDay } = calendar
  return `${unit}${firstDay === undefined ? '' : ` from ${firstDay}`} (${timezone})`
}

/**
 * @param {number} count
 * @param {string} noun
 */
export const pluralize = (count, noun) => `${whole(count)} ${noun}${count === 1 ? '' : 's'}`

/** @param {Overview['activity']['callers'][number]['refusedNow']} [refusedNow] undefined if it is not known */
export function refusal(refusedNow) {
  if (refusedNow === undefined) return { text: 'Unknown', note: '', className: '' }
  if (refusedNow === null) return { text: 'No', note: '', className: '' }
  const { limit, until, forMs } = refusedNow
  const [text, end] =
    until === null
      ? ['Blocked', ', which allows no calls']
      : [duration(forMs / 1000), `, until ${time(until)}`]
  return { text, note: `by ${limit}${end}`, className: 'refused' }
}

/**
 * @param {number} calls
 * @param {Overview['activity']['callers'][number]['limits']} limits
 */
export function refusals(calls, limits) {
  const by = limits.flatMap(({ name, refused }) => (refused > 0 ? [name] : []))
  return `${whole(calls)} in the last minute${by.length === 0 ? '' : ` by ${by.join(', ')}`}`
}

/**
 * @param {'local' | 'allow' | 'deny'} mode
 * @param {number | null} part
 */
function withoutRedis(mode, part) {
  if (mode === 'allow') return 'admits every call'
  if (mode === 'deny') return 'refuses every call'
  return part === null ? 'counted here' : `this gateway admits ${whole(part)}`
}

/** @param {CallerUsage['limits'][number]} counted */
export function kindOf({ shadow, override, until, mode, part }) {
  const kinds = [shadow ? 'shadow' : 'live']
  if (override) kinds.push('override')
  if (until !== null) kinds.push(`until ${time(until)}`)
  if (mode !== 'store') kinds.push(`without Redis, ${withoutRedis(mode, part)}`)
  return kinds.join(', ')
}
