/** Matches an ISO 8601 instant with its offset, also on a day that does not exist. */
export const INSTANT = /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/

/** Formats epoch milliseconds as ISO 8601 in UTC, with milliseconds. */
export const instant = (ms: number): string => new Date(ms).toISOString()

/** Parses an ISO 8601 instant with its offset to epoch milliseconds; returns NaN for other texts and days that do not exist. */
export function instantMs(text: string): number {
  const [, year, month, day] = INSTANT.exec(text) ?? []
  const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day)))
  return date.getUTCDate() === Number(day) ? Date.parse(text) : Number.NaN
}
