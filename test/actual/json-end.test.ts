import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { runs } from '../helpers/runs.ts'
import { findAtEnd, namesOf } from '../../src/actual/json-end.ts'

const USAGE = ['usage', 'total_tokens']
/** Returns the value that is found as it is written. */
const find = (text: string, path: readonly string[] = USAGE, isCut = false) =>
  findAtEnd(Buffer.from(text), namesOf(path), isCut)?.toString()

describe('the value at a path of a JSON object', () => {
  it.each([
    ['{"usage":{"total_tokens":12}}', '12'],
    ['{"usage":{"total_tokens":12.5e0},"id":"x"}\r\n', '12.5e0'],
    ['{ "usage" : { "prompt_tokens" : 1 , "total_tokens" : 12 , "details" : { } } , "list" : [ ] }', '12'],
    ['{"usage":{"total_tokens":null}}', 'null'],
    ['{"usage":{"total_tokens":"12"}}', '"'],
    ['{"usage":{"total_tokens":{"sum":12}}}', '{'],
    ['{"usage":{"total_tokens":[12]}}', '['],
    ['{"us\\u0061ge":{"total\\u005ftokens":12}}', '12'],
    ['{"usage":{"total_tokens":1},"usage":{"total_tokens":2}}', '2'],
    ['{"usage":{"total_tokens":1,"total_tokens":2}}', '2'],
    ['{"usage":{"total_tokens":3,"total_tokens_of_all":4},"usages":{}}', '3'],
    ['{"a":"\\\\","usage":{"total_tokens":3},"b":"\\\\\\"{"}', '3'],
  ])('finds it in %s', (text, value) => {
    expect(find(text)).toBe(value)
  })

  it.each([0, 7, 10, 999_999_999_999_999])('returns the whole number %d as a number', (number) => {
    expect(findAtEnd(Buffer.from(`{"a":${number}}`), namesOf(['a']), false)).toBe(number)
  })

  it.each(['1000000000000000', '00', '012', '-1', '1.0', '12e0', '12x', '12-'])(
    'returns %s as it is written',
    (written) => {
      const value = findAtEnd(Buffer.from(`{"a":${written}}`), namesOf(['a']), false)
      expect(value).toBe(written)
    },
  )

  it.each([
    ['', 'an empty body'],
    ['{}', 'an object without members'],
    ['{"usage":null}', 'a null on the way'],
    ['{"usage":12}', 'a number on the way'],
    ['{"usage":[{"total_tokens":12}]}', 'a list on the way'],
    ['[{"usage":{"total_tokens":12}}]', 'a list around it'],
    ['{"usage":{"total_tokens":1},"usage":{}}', 'a later member with the same name'],
    ['{"choices":[{"usage":{"total_tokens":12}}]}', 'the same members deeper'],
    ['{"total_tokens":12}', 'only the last name'],
    [JSON.stringify({ content: '{"usage":{"total_tokens":12}}' }), 'the same members in a text'],
    [JSON.stringify({ content: '","usage":{"total_tokens":12},"a":"' }), 'a text that looks like members'],
    ['{"usage":{"total_tokens":12}', 'an object that is not closed'],
    ['{"usage":{"total_tokens":12}} trailing', 'other text behind it'],
    ['<p>{"usage":{"total_tokens":12}}</p>', 'a page'],
    ['"}', 'half a text'],
    ['{"usage":{"total_tokens":}}', 'no value'],
    ['{"usage":{"total_tokens" 12}}', 'no colon'],
    ['{"usage" {"total_tokens":12}}', 'no colon further out'],
    ['{"usage":{"x":1 "total_tokens":12}}', 'no comma'],
    ['{"usage":{total_tokens:12}}', 'a name without quotes'],
  ])('finds none in %s: %s', (text) => {
    expect(find(text)).toBeUndefined()
  })

  it('finds the names of a path as UTF-8, and those with dots and blanks', () => {
    expect(find('{"größe":{"日本":7}}', ['größe', '日本'])).toBe('7')
    expect(find('{"gr\\u00f6\\u00dfe":{"\\u65e5本":7}}', ['größe', '日本'])).toBe('7')
    expect(find('{"a.b":{"c d":{"e\\"f":7}}}', ['a.b', 'c d', 'e"f'])).toBe('7')
    expect(find('{"a\\\\n":7}', ['a\\n'])).toBe('7')
    expect(find('{"a\\n":7}', ['a\\n'])).toBeUndefined()
    expect(find('{"__proto__":{"length":7}}', ['__proto__', 'length'])).toBe('7')
  })

  it('finds what JSON.parse finds, in any object', () => {
    // JSON.parse of Node.js 24 and 26 takes the name `"` for `\\` once it has read the latter: only one of them is here.
    const name = fc.constantFrom('a', 'b', 'ä', '"', '{', 'a"', '')
    const { value } = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        fc.integer(),
        fc.constant(null),
        fc.boolean(),
        fc.oneof(name, fc.string({ unit: 'binary' }), fc.constantFrom('}', ']', '":', '\\"', '\\\\"')),
        fc.array(tie('value'), { maxLength: 4 }),
        fc.array(fc.tuple(name, tie('value')), { maxLength: 4 }).map((members) => new Members(members)),
      ),
    }))
    const path = fc.array(name, { minLength: 1, maxLength: 3 })
    const spaces = fc.constantFrom('', ' ', '\n\t')
    fc.assert(
      fc.property(fc.array(fc.tuple(name, value), { maxLength: 5 }), path, spaces, (members, path, space) => {
        const text = write(new Members(members), space)
        expect(find(text, path)).toBe(shown(parsedAt(JSON.parse(text), path)))
      }),
      runs(1000),
    )
  })

  it('finds the same or nothing if the beginning is cut off at any byte', () => {
    const text = JSON.stringify({
      'x\\"usage': { total_tokens: 1 },
      text: '\\"usage":{"total_tokens":2}, ö "usage":',
      usage: { total_tokens: 3, note: '}"' },
      end: ['\\', '"', {}],
    })
    const bytes = Buffer.from(text)
    const from = text.indexOf('"usage":{"total_tokens":3')
    const atUsage = Buffer.byteLength(text.slice(0, from))
    for (let cut = 1; cut < bytes.length; cut++)
      expect([cut, findAtEnd(bytes.subarray(cut), namesOf(USAGE), true)]).toEqual([
        cut,
        cut < atUsage ? 3 : undefined,
      ])
  })

  it('takes no quote for the beginning of a name that a lost backslash may escape', () => {
    const whole = '{"x\\"usage":{"total_tokens":1}}'
    expect(find(whole)).toBeUndefined()
    for (let cut = 1; cut < whole.length; cut++) expect(find(whole.slice(cut), USAGE, true)).toBeUndefined()
  })

  it('finds nothing, and fails in no way, in bytes of any kind', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 60 }).map((array) => Buffer.from(array)),
      fc.string({ unit: fc.constantFrom(...'{}[]":,\\ 1au') }).map((text) => Buffer.from(`${text}}`)),
    )
    fc.assert(
      fc.property(bytes, fc.boolean(), (bytes, isCut) => {
        expect(typeof findAtEnd(bytes, namesOf(['a']), isCut)).toMatch(/^(?:number|string|undefined)$/)
      }),
      runs(1000),
    )
  })

  it.each([
    ['lists', `${'['.repeat(30_000)}${']'.repeat(30_000)}`],
    ['objects', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`],
    ['brackets that do not match', ']'.repeat(60_000)],
    ['backslashes', `"${'\\'.repeat(60_000)}"`],
    ['escaped quotes', `"${'\\"'.repeat(30_000)}"`],
  ])('reads 60 kB of nested %s in linear time and without a deep stack', (_, value) => {
    const from = performance.now()
    expect(find(`{"usage":{"total_tokens":1},"data":${value}}`, ['usage', 'none'])).toBeUndefined()
    // Quadratic time would take seconds.
    expect(performance.now() - from).toBeLessThan(1000)
  })
})

/** An object whose names may occur several times. */
class Members {
  readonly list: readonly (readonly [string, unknown])[]
  constructor(list: readonly (readonly [string, unknown])[]) {
    this.list = list
  }
}

function write(value: unknown, space: string): string {
  if (Array.isArray(value)) return `[${value.map((item) => space + write(item, space)).join(`${space},`)}]`
  if (!(value instanceof Members)) return JSON.stringify(value)
  const members = value.list.map(
    ([name, item]) => `${space}${JSON.stringify(name)}${space}:${space}${write(item, space)}${space}`,
  )
  return `{${members.join(',')}${space}}`
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function parsedAt(value: unknown, [name, ...rest]: readonly string[]): unknown {
  if (name === undefined) return value
  return isObject(value) && Object.hasOwn(value, name) ? parsedAt(value[name], rest) : undefined
}

function shown(value: unknown): string | undefined {
  if (typeof value === 'string') return '"'
  if (Array.isArray(value)) return '['
  if (isObject(value)) return '{'
  return value === undefined ? undefined : JSON.stringify(value)
}
