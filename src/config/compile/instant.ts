import { z } from 'zod'
import { must } from '../yaml/wording.ts'

const INSTANT = /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/

/** The epoch milliseconds of an ISO 8601 instant with its offset; NaN of anything else, days that no calendar has too. */
export function instantMs(text: string): number {
  const [, year, month, day] = INSTANT.exec(text) ?? []
  if (year === undefined) return Number.NaN
  const isDay = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day)
  return isDay ? Date.parse(text) : Number.NaN
}

/** An instant of ISO 8601 with its offset → epoch milliseconds. */
export function instant() {
  const wording = must('an instant such as 2027-01-31T00:00:00Z', (input) =>
    typeof input === 'string' ? explain(input) : undefined,
  )
  return z
    .string(wording)
    .regex(INSTANT, { ...wording, abort: true })
    .refine((text) => !Number.isNaN(instantMs(text)), wording)
    .transform(instantMs)
}

function explain(text: string): string | undefined {
  if (INSTANT.test(text)) return 'is no instant that there is; look at the day, the time and the offset'
  if (INSTANT.test(`${text}T00:00:00Z`)) return `has no time of day; write ${text}T00:00:00Z`
  if (INSTANT.test(`${text}Z`)) {
    return `has no offset, so it is another instant in every place; write ${text}Z, or ${text}+01:00 with the offset that is meant`
  }
  const mended = text.toUpperCase().replace(/^(\S+)\s+/, '$1T')
  return INSTANT.test(mended) ? `must have a "T" and no space; write ${mended}` : undefined
}
