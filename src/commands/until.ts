import { duration } from '../config/sections/values.ts'
import { instantMs } from '../runtime/instant.ts'
import { UsageError } from './args.ts'

const durationSchema = duration('1s', '3650d')

/** Returns the instant that a flag names, in epoch milliseconds: an instant, or a duration from now; throws a UsageError. */
export function readUntil(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const { success, data } = durationSchema.safeParse(text)
  const untilAt = success ? Date.now() + data : instantMs(text)
  if (Number.isNaN(untilAt))
    throw new UsageError(
      '--until must be an instant such as 2027-01-31T00:00:00Z, or a duration such as 30d.',
    )
  if (untilAt <= Date.now()) throw new UsageError('--until has passed.')
  return untilAt
}
