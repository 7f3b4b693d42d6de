const UNITS_MS: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000 }
/** A duration as Go writes it, such as 1m32.05s, 6.31ms or 12µs. */
const GO = /^(?:(\d{1,6})h)?(?:(\d{1,2})m)?(\d{1,9}(?:\.\d{1,9})?)(ns|us|µs|ms|s)$/

/** Reads seconds, or a duration as Go writes it, to milliseconds; NaN if it is neither. */
export function readDuration(value: unknown): number {
  if (typeof value !== 'string') return Number(value) * 1000
  const [, hours = 0, minutes = 0, number, unit = ''] = GO.exec(value) ?? []
  return (Number(hours) * 60 + Number(minutes)) * 60_000 + Number(number) * UNITS_MS[unit]!
}
