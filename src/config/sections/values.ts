import { z } from 'zod'
import { must, mustHave, mustSecretly, oneOf } from '../yaml/wording.ts'
import { nearest } from '../checks/nearest.ts'

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/
const UNIT_BYTES = { B: 1, kB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 } as const
const SIZE = /^(\d+(?:\.\d+)?)(B|kB|MB|GB)$/

/** The milliseconds of a duration such as `30s`; NaN of anything else. */
export function durationMs(text: string): number {
  const [, count, unit] = DURATION.exec(text) ?? []
  return count === undefined ? Number.NaN : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]
}

/** The bytes of a size such as `16kB`; NaN of anything else. */
function sizeBytes(text: string): number {
  const [, count, unit] = SIZE.exec(text) ?? []
  return count === undefined ? Number.NaN : Number(count) * UNIT_BYTES[unit as keyof typeof UNIT_BYTES]
}

/** A duration with its unit → milliseconds. */
export function duration(least: string, most: string) {
  return measure(
    durationMs,
    DURATION,
    { noun: 'duration', units: ['ms', 's', 'm', 'h', 'd'], grain: 'milliseconds' },
    least,
    most,
  )
}

/** A size with its unit → bytes. */
export function size(least: string, most: string) {
  return measure(
    sizeBytes,
    SIZE,
    { noun: 'size', units: ['B', 'kB', 'MB', 'GB'], grain: 'bytes' },
    least,
    most,
  )
}

function measure(
  read: (text: string) => number,
  pattern: RegExp,
  {
    noun,
    units,
    grain,
  }: { readonly noun: string; readonly units: readonly string[]; readonly grain: string },
  least: string,
  most: string,
) {
  const small = units.slice(0, 2)
  const fits = (value: number): boolean =>
    Number.isInteger(value) && value >= read(least) && value <= read(most)
  const wording = must(`a ${noun} from ${least} to ${most} (units ${units.join(', ')})`, (input) => {
    if (typeof input === 'number') {
      const meant = small.map((unit) => `${input}${unit}`).filter((one) => fits(read(one)))
      return meant.length > 0 ? `has no unit; write ${meant.join(' or ')}` : undefined
    }
    if (typeof input !== 'string') return undefined
    const value = read(input)
    if (!Number.isNaN(value)) return Number.isInteger(value) ? undefined : `must come to whole ${grain}`
    const [, count = '', written = ''] = /^([\d.]+)\s*([A-Za-z]+)$/.exec(input) ?? []
    const meant = units.find((one) => one.toLowerCase() === written.toLowerCase())
    return meant && `must be a ${noun} such as 30${small[1]}; did you mean "${count}${meant}"?`
  })
  return z
    .string(wording)
    .regex(pattern, { ...wording, abort: true })
    .refine((text) => fits(read(text)), wording)
    .transform(read)
}

/** A whole number. */
export function whole(least: number, most: number, what = `a whole number from ${least} to ${most}`) {
  const wording = must(what)
  return z
    .number(wording)
    .int({ ...wording, abort: true })
    .min(least, wording)
    .max(most, wording)
}

/** 0 lets the system choose a free port. */
export function port() {
  return whole(0, 65_535, 'a port from 0 to 65535')
}

/** One of a few words. */
export function choice<const T extends readonly [string, ...string[]]>(words: T) {
  return z.enum(
    words,
    must(oneOf(words), (input) => {
      const meant = typeof input === 'string' ? nearest(input, words) : undefined
      return meant === undefined ? undefined : `must be ${oneOf(words)}; did you mean "${meant}"?`
    }),
  )
}

/** A text that is not empty. */
export function text(what: string) {
  const wording = must(what, (input) => {
    if (typeof input === 'number') return 'is a number here; put it in quotes'
    return input === '' ? `is empty; write ${what}` : undefined
  })
  return z.string(wording).min(1, wording)
}

/** A text that `sound` accepts. */
export function textThat(
  sound: (text: string) => boolean,
  what: string,
  explain?: (text: string) => string | undefined,
) {
  const wording = must(what, (input) => (typeof input === 'string' ? explain?.(input) : undefined))
  return z.string(wording).refine(sound, wording)
}

/** A text that is never repeated in a message. */
export function secret(what: string, sound = (text: string): boolean => text !== '') {
  const wording = mustSecretly(what, (input) =>
    typeof input === 'number' ? 'is a number here; put it in quotes' : undefined,
  )
  return z.string(wording).refine(sound, wording)
}

/** A list without duplicates. */
export function list<T extends z.ZodType>(item: T, least: number, what: string) {
  const wording = must(what, (input) =>
    Array.isArray(input)
      ? 'is empty; write at least one'
      : `must be ${what}, in [ ] or with a "- " before each`,
  )
  return z.array(item, wording).min(least, wording)
}

/** A mapping with the keys of `shape` and no other. */
export function section<T extends z.core.$ZodLooseShape>(shape: T) {
  return z.strictObject(shape, mustHave(Object.keys(shape)))
}

/** The names that operators give to upstreams and limits. */
export function name() {
  return z.string().regex(/^[a-z][a-z0-9_-]*$/, {
    error: 'is not a name; write lower-case letters, digits, "-" and "_", a letter first',
  })
}
