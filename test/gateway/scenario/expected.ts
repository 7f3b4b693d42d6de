import { expect } from 'vitest'
import type { Values } from './file.ts'

/** A request or a response by names: its fields, `status`, `body` and others. */
export type Response = Readonly<Record<string, unknown>>

/** Expects the named values, whose names are written in any case at the top. */
export function expectValues(actual: Response, expected: Values, name: string): void {
  const lower = ([key, value]: [string, unknown]) => [
    /^[a-z]+$/i.test(key) && key in actual ? key : key.toLowerCase(),
    value,
  ]
  const wanted = Object.fromEntries(Object.entries(expected).map(lower)) as Values
  expect(picked(actual, wanted), name).toEqual(matchers(wanted, false))
}

/** Keys of an expected value that say how a text must be. */
const isOfText = (expected: Values): boolean =>
  /^(?:matches|contains|lacks)$/.test(Object.keys(expected).join())

const isMapping = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns the part of a value that an expected value names. */
function picked(actual: unknown, expected: unknown): unknown {
  if (Array.isArray(actual) && isMapping(expected)) {
    if (isOfText(expected)) return actual.join('\n')
    const named = (actual as { name?: string; caller?: string }[]).map(
      (one) => [one.name ?? one.caller, one] as const,
    )
    return picked(Object.fromEntries(named), expected)
  }
  if (Array.isArray(actual) && Array.isArray(expected) && actual.length === expected.length)
    return actual.map((one, i) => picked(one, expected[i]))
  if (!isMapping(actual) || !isMapping(expected) || isOfText(expected)) return actual
  return Object.fromEntries(Object.keys(expected).map((key) => [key, picked(actual[key], expected[key])]))
}

/** True if an instant is at least `least` and at most `most` seconds from now. */
function isIn(instant: string, least: number, most: number): boolean {
  const seconds = (Date.parse(instant) - Date.now()) / 1000
  return seconds >= least && seconds <= most
}

/** Returns an expected value as vitest compares it. A field that is written as a number is compared as text. */
function matchers(expected: unknown, isJson: boolean): unknown {
  if (expected === 'absent') return undefined
  const [, least, most] = /^in (\d+) to (\d+) seconds$/.exec(String(expected)) ?? []
  if (most !== undefined)
    return expect.toSatisfy((instant) => isIn(String(instant), Number(least), Number(most)), String(expected))
  if (Array.isArray(expected)) return expected.map((one) => matchers(one, isJson))
  if (!isMapping(expected)) return expected
  const { matches, contains, lacks } = expected
  if (typeof matches === 'string') return expect.stringMatching(new RegExp(matches))
  if (typeof contains === 'string') return expect.stringContaining(contains)
  if (typeof lacks === 'string')
    return expect.toSatisfy((text) => typeof text === 'string' && !text.includes(lacks), `lacks ${lacks}`)
  return Object.fromEntries(
    Object.entries(expected).map(([key, value]) => {
      const isField = !isJson && typeof value === 'number' && key !== 'status'
      return [key, isField ? String(value) : matchers(value, isJson || key === 'json')]
    }),
  )
}

/** Returns the names of an expected value. */
export const namesIn = (expected: unknown): string[] => (isMapping(expected) ? Object.keys(expected) : [])
