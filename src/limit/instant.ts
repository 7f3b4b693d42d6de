/** An ISO 8601 instant with its offset; the day may be one that no calendar has. */
export const INSTANT = /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/

/** Returns epoch milliseconds as ISO 8601 in UTC, with milliseconds. */
export const instant = (ms: number): string => new Date(ms).toISOString()

/** Parses an ISO 8601 instant with its offset, in epoch milliseconds; NaN of anything else, also of days that no calendar has. */
export function instantMs(text: string): number {
  const [, year, month, day] = INSTANT.exec(text) ?? []
  const isDay = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day)
  return isDay ? Date.parse(text) : Number.NaN
}
