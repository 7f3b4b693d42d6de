import { hash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  encodeValue,
  formatCaller,
  isShortened,
  parseCaller,
  showCaller,
} from '../../src/policy/counted-caller.ts'
import { quotasOf } from './quotas.ts'

const SHA = hash('sha256', 'a token', 'base64url')

describe('the text of a caller', () => {
  it.each([
    ['acme', 'client:acme'],
    ['client:acme', 'client:acme'],
    ['client:user:jo', 'client:user:jo'],
    ['client:client:acme', 'client:client:acme'],
    ['acme=1', 'client:acme=1'],
    ['acme@https://identity.example.com', 'client:acme@https://identity.example.com'],
    ['user:a b', 'user:a b'],
    ['ip:192.0.2.7', 'ip:192.0.2.7'],
    ['ip:::ffff:192.0.2.7', 'ip:192.0.2.7'],
    ['ip:2001:db8::7', 'ip:2001:db8:0:0::/64'],
    ['ip:2001:db8:0:0::/64', 'ip:2001:db8:0:0::/64'],
    ['header:X-Api-Key=AbC', 'header:x-api-key=abc'],
    ['header:x-api-key=a=b', 'header:x-api-key=a=b'],
    ['claim:consent_id=C-17', 'claim:consent_id=C-17'],
    [`token:${SHA}`, `token:${SHA}`],
    [`token:${hash('sha256', 'a token')}`, `token:${SHA}`],
    ['client:acme header:x-device=one', 'client:acme header:x-device=one'],
    ['acme user:a b ip:192.0.2.7', 'client:acme user:a b ip:192.0.2.7'],
  ])('%s is parsed as %s, also again', (text, whole) => {
    expect(formatCaller(parseCaller(text))).toBe(whole)
    expect(formatCaller(parseCaller(whole))).toBe(whole)
  })

  it.each([
    '',
    'client:',
    'user:',
    'ip:',
    'ip:x',
    'ip:192.0.2',
    'header:x-api-key=',
    'token:abc',
    'acme user:',
    `acme${' ip:192.0.2.7'.repeat(16)}`,
  ])('%j is a mistake', (text) => {
    expect(() => parseCaller(text)).toThrow(expect.objectContaining({ name: 'InvalidQuestion' }) as Error)
  })

  it('shows header fields and tokens shortened, and nothing else', () => {
    const short = (value: string) => `${value.slice(0, 4)}…${hash('sha256', value).slice(0, 8)}`
    expect(showCaller(parseCaller('header:x-api-key=ABC123'))).toBe('header:x-api-key=abc1…6ca13d52')
    expect(showCaller(parseCaller(`token:${SHA}`))).toBe(`token:${short(SHA)}`)
    for (const open of ['client:acme', 'user:jo', 'ip:192.0.2.7', 'claim:consent_id=c-17'])
      expect(showCaller(parseCaller(open))).toBe(open)
    const several = showCaller(parseCaller('acme header:x-api-key=abc123'))
    expect(several).toBe('client:acme header:x-api-key=abc1…6ca13d52')
    expect(isShortened(parseCaller(several))).toBe(true)
    expect(showCaller(parseCaller(several))).toBe(several)
    expect(isShortened(parseCaller('acme header:x-api-key=abc123'))).toBe(false)
  })

  it('shows a client whose id reads like a caller by a text that only it has', () => {
    for (const id of ['client:acme', 'user:jo', 'ip:192.0.2.7', '192.0.2.7', 'acme user:jo', '"acme"']) {
      const caller = [{ word: 'client', value: id }]
      expect(parseCaller(showCaller(caller))).toEqual(caller)
      if (!/[ "]/.test(id)) expect(showCaller(caller)).toBe(`client:${id}`)
    }
  })

  it('the text of a caller has the value under which a limit counts the caller', () => {
    const per = (word: string) => ({
      ...{ name: 'l', per: [word], limit: 1, windowMs: 1000, shadow: false, changes: [] },
    })
    const keyOf = (text: string) => {
      const [part] = parseCaller(text)
      return `p:{${encodeValue(part!)}}:l`
    }
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 300, unit: 'grapheme' }), (id) => {
        expect(keyOf(formatCaller([{ word: 'client', value: id }]))).toBe(
          quotasOf([per('client')], { client: id })[0]!.key,
        )
      }),
    )
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (ip) => {
        expect(keyOf(`ip:${ip}`)).toBe(quotasOf([per('ip')], { ip })[0]!.key)
      }),
    )
  })
})

it.each(['victim ip:127.0.0.1', 'x, client:victim', 'a "quoted" name', '"', 'one "odd quote', '"\\'])(
  'a value that reads like further parts or callers, %s, is written in quotes, and read again',
  (value) => {
    const caller = [
      { word: 'user', value },
      { word: 'ip', value: '192.0.2.7' },
    ]
    expect(formatCaller(caller)).not.toBe(`user:${value} ip:192.0.2.7`)
    expect(parseCaller(formatCaller(caller))).toEqual(caller)
  },
)

it('any value, and the part after it, is read as it was written', () => {
  const unit = fc.constantFrom('"', '\\', ' ', ',', 'ip:', 'a')
  fc.assert(
    fc.property(fc.string({ unit, minLength: 1 }), (value) => {
      const caller = [
        { word: 'user', value },
        { word: 'ip', value: '192.0.2.7' },
      ]
      expect(parseCaller(formatCaller(caller))).toEqual(caller)
    }),
  )
})
