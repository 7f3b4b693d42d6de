import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import type { Form } from '../../src/par/form.ts'
import { anyText } from '../helpers/any-text.ts'
import { readForm } from '../helpers/par-request.ts'

const FORM = 'application/x-www-form-urlencoded'
const read = (body: string | Uint8Array): Form | Refusal => readForm(FORM, Buffer.from(body))
const words = (body: string | Uint8Array): string => (read(body) as Refusal).message

const name = fc.stringMatching(/^[a-z0-9_]{1,128}$/)
const value = anyText().filter((text) => !text.includes('\0'))
const pairs = fc.uniqueArray(fc.tuple(name, value), { maxLength: 100, selector: ([name]) => name })

describe('reading a form', () => {
  it('reads everything that URLSearchParams writes', () => {
    fc.assert(
      fc.property(pairs, (pairs) => {
        const form = read(new URLSearchParams(pairs).toString())
        expect([...(form as Form)]).toEqual(pairs.filter(([, value]) => value !== ''))
      }),
    )
  })

  it('reads any bytes as URLSearchParams does, or refuses them', () => {
    const piece = fc.constantFrom(...'a bc resource = & + % %41 %c3%a9 %00 %ff é ; []'.split(' '), ' ', '\0')
    const bytes = fc.oneof(
      fc.array(piece).map((pieces) => Buffer.from(pieces.join(''))),
      fc.uint8Array().map((bytes) => Buffer.from(bytes)),
    )
    let taken = 0
    fc.assert(
      fc.property(bytes, (bytes) => {
        const form = read(bytes)
        if (form instanceof Refusal) {
          expect(form).toMatchObject({ status: 400, oauthError: 'invalid_request' })
          return
        }
        taken++
        const expected = new URLSearchParams(bytes.toString())
        for (const [name, value] of form) expect(expected.getAll(name)[0] || value).toBe(value)
        const names = [...expected].filter(([, value]) => value !== '').map(([name]) => name)
        expect(new Set(form.keys())).toEqual(new Set(names))
      }),
      { numRuns: 2000 },
    )
    expect(taken).toBeGreaterThan(100)
  })

  it('leaves each character of a value as it is', () => {
    expect(read('a=%2B+%2520%26%3D%3B&b=x=y=&c=%EF%BB%BF&d=é')).toEqual(
      new Map([
        ['a', '+ %20&=;'],
        ['b', 'x=y='],
        ['c', '\ufeff'],
        ['d', 'é'],
      ]),
    )
  })

  it('accepts names that objects inherit', () => {
    expect(read('__proto__=a&constructor=b')).toEqual(
      new Map([
        ['__proto__', 'a'],
        ['constructor', 'b'],
      ]),
    )
    expect(words('__proto__=a&__proto__=b')).toMatch(/__proto__ once/)
  })

  it.each([
    ['a bad escape', 'a=100%'],
    ['half an escape', 'a=%4'],
    ['an escape of no number', 'a=%zz'],
    ['a byte that is not a character', 'a=%ff'],
    ['half a character', 'a=%ED%A0%80'],
    ['a character in too many bytes', 'a=%C0%AF'],
    ['a NUL', 'a=x%00y'],
    ['a raw NUL', 'a=x\0y'],
  ])('refuses %s in a value and names the parameter', (_, body) => {
    expect(words(body)).toMatch(/^The parameter a is malformed/)
  })

  it.each([
    ['a dot', 'client.id=x'],
    ['a hyphen', 'client-id=x'],
    ['capitals', 'Client_Id=x'],
    ['a wide letter', '\uff58=x'],
    ['an invisible character', 'x\u200b=x'],
    ['brackets', 'request_uri[]=x'],
    ['escaped brackets', 'request_uri%5B%5D=x'],
    ['nothing', '=x'],
    ['a space', 'request_uri+=x'],
    ['a line break', 'request_uri%0A=x'],
    ['a NUL', 'request_uri%00=x'],
    ['a byte order mark', '\ufeffrequest_uri=x'],
    ['a letter that looks like another', 'requ\u0435st_uri=x'],
    ['more than the maximum length', `${'x'.repeat(129)}=x`],
  ])('refuses a name with %s', (_, body) => {
    expect(words(body)).toMatch(/malformed name/)
  })

  it('refuses bytes that are not UTF-8, and a raw ";", at which some parsers split', () => {
    expect(words(Buffer.from('a=\xff', 'latin1'))).toMatch(/UTF-8/)
    expect(words('state=1;request_uri=x')).toMatch(/semicolon/)
  })

  it('accepts a name of the maximum length', () => {
    const longest = 'x'.repeat(128)
    expect(read(`${longest}=y`)).toEqual(new Map([[longest, 'y']]))
  })

  it('finds a repetition in any spelling', () => {
    expect(words('%61=x&b=y&a=z')).toMatch(/parameter a once/)
    expect(words('a&a')).toMatch(/parameter a once/)
    expect(words('a=&a=x')).toMatch(/parameter a once/)
    expect(read('resource=x&resource=y&resource')).toEqual(new Map([['resource', 'x']]))
  })

  it('bounds how many parameters there are', () => {
    const some = (count: number): string => Array.from({ length: count }, (_, i) => `p${i}=x`).join('&')
    expect((read(some(100)) as Form).size).toBe(100)
    expect(words(some(101))).toMatch(/at most 100/)
  })

  it.each([
    ['separators', '&'],
    ['signs', '='],
    ['escapes', '%41'],
    ['bad escapes', '%'],
    ['spaces', '+'],
    ['names', 'resource=x&'],
    ['characters', 'é'],
  ])('needs time proportional to its length, of %s too', (_, piece) => {
    const body = Buffer.from(piece.repeat(256 * 1024))
    const before = process.cpuUsage()
    read(body)
    readForm(`${FORM}${';charset'.repeat(2000)}`, body)
    // Microseconds of the processor: the square of the length would take minutes.
    expect(process.cpuUsage(before).user).toBeLessThan(3_000_000)
  })
})
