import { z } from 'zod'
import { INSTANT, instantMs } from '../../runtime/instant.ts'
import { type Issue, issueAt, issueAtKey, mustBe, mustBeMapping, oneOf } from '../yaml/issue.ts'

export const DURATION_UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
export const SIZE_UNITS = { B: 1, kB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 }

/** Creates the schema of durations within bounds, as written with units → milliseconds. */
export const duration = measure('duration', DURATION_UNITS)
/** Creates the schema of sizes within bounds, as written with units → bytes. */
export const size = measure('size', SIZE_UNITS)

function measure(noun: string, units: Readonly<Record<string, number>>) {
  const names = Object.keys(units)
  const pattern = new RegExp(`^(\\d+(?:\\.\\d+)?)(${names.join('|')})$`)
  const read = (text: string): number => {
    const [, count, unit = ''] = pattern.exec(text) ?? []
    const value = Number(count) * units[unit]!
    // 2.01 * 1000 is 2009.9999999999998.
    return Math.abs(value - Math.round(value)) < 1e-6 ? Math.round(value) : value
  }
  return (min: string, max: string) => {
    const options = mustBe(`a ${noun} from ${min} to ${max} (units ${names.join(', ')})`)
    const fits = (text: string): boolean => {
      const value = read(text)
      return Number.isInteger(value) && value >= read(min) && value <= read(max)
    }
    return z.string(options).regex(pattern, options).refine(fits, options).transform(read)
  }
}

/** Creates the schema of whole percentages from 1 to 100, written as `10%`. */
export function percentage() {
  const options = mustBe('a percentage from 1% to 100%, such as 10%')
  return z
    .string(options)
    .regex(/^(?:[1-9]\d?|100)%$/, options)
    .transform((text) => Number(text.slice(0, -1)))
}

/** Converts a string, as the environment and flags give it, like a plain YAML scalar. */
export function coerced<T extends z.ZodType>(schema: T) {
  return z.preprocess((input) => {
    if (typeof input !== 'string') return input
    if (/^(?:true|True|TRUE)$/.test(input)) return true
    if (/^(?:false|False|FALSE)$/.test(input)) return false
    return /^[-+]?(?:\d+|\d*\.\d+|\d+\.)(?:[eE][-+]?\d+)?$/.test(input) ? Number(input) : input
  }, schema)
}

export function int(min: number, max: number, what = `a whole number from ${min} to ${max}`) {
  const options = mustBe(what)
  const number = z.number(options).int({ ...options, abort: true })
  return coerced(number.min(min, options).max(max, options))
}

export const bool = coerced(z.boolean(mustBe('true or false')))

/** A port; 0 lets the system choose one. */
export const port = int(0, 65_535, 'a port from 0 to 65535')

export const choice = <const T extends readonly string[]>(words: T) => z.enum(words, mustBe(oneOf(words)))

/**
 * Creates the schema of texts that `check` accepts. `check` may return a message that is more
 * specific than `what`.
 */
export function stringThat(check: (text: string) => boolean | string, what: string) {
  const options = mustBe(what, (input) => {
    if (typeof input === 'number') return 'is a number here; put it in quotes'
    if (typeof input === 'boolean') return `is ${input} here, which is no text; put it in quotes`
    const result = typeof input === 'string' && check(input)
    return typeof result === 'string' && result
  })
  return z.string(options).refine((text) => check(text) === true, options)
}

export const text = (what: string) =>
  stringThat((text) => text !== '' || `is empty; write ${what}`, what).min(1)

export function list<T extends z.ZodType>(item: T, min: number, what: string) {
  const form = `${what}, in [ ] or with a "- " before each`
  const options = mustBe(form, (input) => Array.isArray(input) && 'is empty; write at least one')
  return z.array(item, options).min(min, options)
}

/** Matches the comma before a URL, or before the path of a socket: a comma may also be part of one. */
export const BEFORE_URL = /,(?=\s*[a-z]+:\/)/

/**
 * Creates the schema of a list whose items may each be several, separated by commas, or none: a
 * variable of the environment can only be one text.
 */
export function separable<T extends z.ZodType>(item: T, min: number, what: string, separator = /,/) {
  const separate = (text: unknown): unknown =>
    typeof text === 'string' ? text.split(separator).flatMap((part) => part.trim() || []) : text
  const items = list(item, min, what)
  return z.preprocess((input) => (Array.isArray(input) ? input.flatMap(separate) : input), items)
}

export const distinct = <T extends z.ZodType<string>>(item: T, min: number, what: string) =>
  list(item, min, what).superRefine(crossField(duplicates))

function* duplicates(words: readonly string[]): Generator<Issue> {
  for (const [i, word] of words.entries())
    if (words.indexOf(word) < i) yield issueAt([i], `is a duplicate; remove one "${word}"`)
}

const isInstant = (text: string): boolean => !Number.isNaN(instantMs(text))
const AN_INSTANT = mustBe('an instant such as 2027-01-31T00:00:00Z')
/** Schema of instants → epoch milliseconds. The pattern is for the JSON Schema. */
export const writtenInstant = z
  .string(AN_INSTANT)
  .refine(isInstant, AN_INSTANT)
  .regex(INSTANT)
  .transform(instantMs)

type Shape = z.core.$ZodLooseShape
type Values<T extends Shape> = z.output<z.ZodObject<T, z.core.$strict>>

/**
 * Creates the schema of a mapping. Its keys are the names without `Ms` and `At`: `timeout` for
 * `timeoutMs`. `check` yields mistakes that involve several of them.
 */
export function section<T extends Shape>(shape: T, check?: (values: Values<T>) => Iterable<Issue>) {
  const names = new Map(Object.keys(shape).map((name) => [name.replace(/(?:Ms|At)$/, ''), name]))
  const fields = Object.fromEntries([...names].map(([key, name]) => [key, shape[name]!]))
  const named = (values: object) =>
    Object.fromEntries(Object.entries(values).map(([key, value]) => [names.get(key), value])) as Values<T>
  const mapping = z.strictObject(fields, mustBeMapping([...names.keys()])).transform(named)
  return check === undefined ? mapping : mapping.superRefine(crossField(check))
}

/**
 * Returns a `superRefine` callback for checks across fields, run only if each field is valid. Paths
 * are relative to the value.
 */
export function crossField<T>(check: (value: T) => Iterable<Issue>) {
  return (value: T, context: z.core.$RefinementCtx<T>): void => {
    if (context.issues.length > 0) return
    for (const { path, message, key } of check(value))
      context.addIssue({ code: 'custom', path: [...path], message, params: { key } })
  }
}

export const atKey = (key: string, message: string): Issue => issueAtKey([key], message)

/** Yields the keys that are set in addition to the first one of `keys` that is. */
export function* exclusive<T extends object>(values: T, keys: readonly (keyof T & string)[]) {
  const [first, ...others] = keys.filter((key) => values[key] !== undefined)
  for (const key of others) yield atKey(key, `cannot be combined with "${first}"; remove one`)
}

/**
 * Creates the schema of mappings of an operator's names to values → the values with their names, in
 * the order of the file.
 */
export function named<T extends z.ZodType<object>>(schema: T, what: string) {
  const error = 'is not a name; write lower-case letters, digits, "-" and "_", a letter first'
  return z
    .record(z.string().regex(/^[a-z][a-z0-9_-]*$/, { error }), schema, mustBe(what))
    .transform((values) => Object.entries(values).map(([name, value]) => ({ name, ...value })))
}
