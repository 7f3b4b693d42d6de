const UNITS_MS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
] as const
const UNITS_BYTES = [
  ['GB', 1024 ** 3],
  ['MB', 1024 ** 2],
  ['kB', 1024],
  ['B', 1],
] as const

/** Milliseconds as the configuration writes them, such as `90s`. */
export function duration(ms: number): string {
  return inUnits(ms, UNITS_MS, '0s')
}

/** Bytes as the configuration writes them, such as `16kB`. */
export function size(bytes: number): string {
  return inUnits(bytes, UNITS_BYTES, '0B')
}

/** In the largest unit that leaves a whole number. */
function inUnits(value: number, units: readonly (readonly [string, number])[], zero: string): string {
  const unit = units.find(([, one]) => value >= one && value % one === 0)
  return unit ? `${value / unit[1]}${unit[0]}` : zero
}

/** Epoch milliseconds as ISO 8601 in UTC. */
export function instant(ms: number): string {
  return new Date(ms).toISOString()
}
