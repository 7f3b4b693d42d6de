import { z } from 'zod'
import { type Issue, mustBe, mustBeMapping, nearest, oneOf } from '../yaml/issue.ts'

/** The units of durations, in milliseconds. */
export const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
/** The units of sizes, in bytes. */
export const UNITS_BYTES = { B: 1, kB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 }

/** Units as they are often written instead, but for case. */
const MISWRITTEN: Readonly<Record<string, string>> = {
  ms: 'msec msecs millis millisecond milliseconds',
  s: 'sec secs second seconds',
  m: 'min mins minute minutes',
  h: 'hr hrs hour hours',
  d: 'day days',
  B: 'byte bytes',
  kB: 'k kib',
  MB: 'm mib',
  GB: 'g gib',
}

/** Durations between two, with their units → milliseconds. */
export const duration = measure('duration', UNITS_MS, 'milliseconds')
/** Sizes between two, with their units → bytes. */
export const size = measure('size', UNITS_BYTES, 'bytes')

function measure(noun: string, units: Readonly<Record<string, number>>, grain: string) {
  const names = Object.keys(units)
  const pattern = new RegExp(`^(\\d+(?:\\.\\d+)?)(${names.join('|')})$`)
  const read = (text: string): number => {
    const [, count, unit = ''] = pattern.exec(text) ?? []
    return Number(count) * units[unit]!
  }
  return (least: string, most: string) => {
    const [lowest, highest] = [read(least), read(most)]
    const fits = (text: string): boolean => {
      const value = read(text)
      return Number.isInteger(value) && value >= lowest && value <= highest
    }
    const wording = mustBe(`a ${noun} from ${least} to ${most} (units ${names.join(', ')})`, (input) => {
      if (typeof input === 'number') {
        const meant = names.slice(0, 2).map((unit) => `${input}${unit}`)
        return meant.some(fits) ? `has no unit; write ${meant.filter(fits).join(' or ')}` : undefined
      }
      if (typeof input !== 'string') return undefined
      if (pattern.test(input))
        return Number.isInteger(read(input)) ? undefined : `must come to whole ${grain}`
      const [, count = '', written = ''] = /^([\d.]+)\s*([A-Za-z]+)$/.exec(input) ?? []
      const word = written.toLowerCase()
      const meant = names.find(
        (one) => one.toLowerCase() === word || MISWRITTEN[one]!.split(' ').includes(word),
      )
      if (meant === undefined || !fits(`${count}${meant}`)) return undefined
      return `must be a ${noun} such as 30${names[1]}; did you mean "${count}${meant}"?`
    })
    return z
      .string(wording)
      .regex(pattern, { ...wording, abort: true })
      .refine(fits, wording)
      .transform(read)
  }
}

/** A value that is no text: the environment and flags give it as one, which is read like a plain YAML scalar. */
export function coerced<T extends z.ZodType>(schema: T) {
  return z.preprocess((input) => {
    if (typeof input !== 'string') return input
    if (/^(?:true|True|TRUE)$/.test(input)) return true
    if (/^(?:false|False|FALSE)$/.test(input)) return false
    return /^[-+]?(?:\d+|\d*\.\d+|\d+\.)(?:[eE][-+]?\d+)?$/.test(input) ? Number(input) : input
  }, schema)
}

export function int(least: number, most: number, what = `a whole number from ${least} to ${most}`) {
  const wording = mustBe(what)
  const number = z.number(wording).int({ ...wording, abort: true })
  return coerced(number.min(least, wording).max(most, wording))
}

export const bool = coerced(z.boolean(mustBe('true or false')))

/** 0 lets the system choose a free port. */
export const port = int(0, 65_535, 'a port from 0 to 65535')

/** One of a few words. */
export function choice<const T extends readonly [string, ...string[]]>(words: T) {
  return z.enum(
    words,
    mustBe(oneOf(words), (input) => {
      const meant = typeof input === 'string' ? nearest(input, words) : undefined
      return meant === undefined ? undefined : `must be ${oneOf(words)}; did you mean "${meant}"?`
    }),
  )
}

/** A text that `check` finds sound; else it returns false, or a message that says more than `what` it must be. */
export function stringThat(check: (text: string) => boolean | string, what: string) {
  const wording = mustBe(what, (input) => {
    if (typeof input === 'number') return 'is a number here; put it in quotes'
    const found = typeof input === 'string' && check(input)
    return typeof found === 'string' ? found : undefined
  })
  return z.string(wording).refine((text) => check(text) === true, wording)
}

/** A text that is not empty. */
export function text(what: string) {
  return stringThat((text) => text !== '' || `is empty; write ${what}`, what).min(1)
}

export function list<T extends z.ZodType>(item: T, least: number, what: string) {
  const wording = mustBe(what, (input) =>
    Array.isArray(input)
      ? 'is empty; write at least one'
      : `must be ${what}, in [ ] or with a "- " before each`,
  )
  return z.array(item, wording).min(least, wording)
}

/** A list of words without duplicates. */
export function distinct<T extends z.ZodType<string>>(item: T, least: number, what: string) {
  return list(item, least, what).superRefine(
    crossField(function* (words) {
      for (const [i, word] of words.entries())
        if (words.indexOf(word) < i) yield { path: [i], message: `stands twice; take one "${word}" out` }
    }),
  )
}

/** A mapping with the keys of `shape` and no other. */
export function section<T extends z.core.$ZodLooseShape>(shape: T) {
  return z.strictObject(shape, mustBeMapping(Object.keys(shape)))
}

/** For `superRefine`: reports what no value inside gets wrong alone, where each is right by itself. Paths begin at the value. */
export function crossField<T>(check: (value: T) => Iterable<Issue>) {
  return (value: T, context: z.core.$RefinementCtx<T>): void => {
    if (context.issues.length > 0) return
    for (const { path, message, key } of check(value))
      context.addIssue({ code: 'custom', path: [...path], message, params: { key } })
  }
}

/** A mapping of the names that operators give to `schema`, as a list in the order of the file. */
export function named<T extends z.ZodType<object>>(schema: T, what: string) {
  const name = z.string().regex(/^[a-z][a-z0-9_-]*$/, {
    error: 'is not a name; write lower-case letters, digits, "-" and "_", a letter first',
  })
  return z
    .record(name, schema, mustBe(what))
    .transform((all) => Object.entries(all).map(([name, one]) => ({ name, ...one })))
}
