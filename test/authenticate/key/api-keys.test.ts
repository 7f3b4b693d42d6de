import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { createApiKeys } from '../../../src/authenticate/key/api-keys.ts'
import {
  createKeyText,
  hashOfKey,
  isKeyText,
  isMistyped,
  KEY_IN_TEXT,
} from '../../../src/authenticate/key/key-text.ts'

describe('a key', () => {
  it('is recognised by its prefix and checksum, and each is another one', () => {
    const keys = Array.from({ length: 1000 }, createKeyText)
    expect(new Set(keys).size).toBe(1000)
    for (const key of keys) {
      expect(isKeyText(key)).toBe(true)
      expect(isMistyped(key)).toBe(false)
      expect(`found "${key}" in a file`).toMatch(KEY_IN_TEXT)
    }
    // Every digit of base32 occurs at every random place.
    for (let i = 4; i < 36; i++) expect(new Set(keys.map((key) => key[i])).size).toBe(32)
  })

  it('with one other, one missing, one more or two swapped characters is mistyped', () => {
    const key = createKeyText()
    for (let i = 4; i < key.length; i++) {
      const other = key[i] === 'a' ? 'b' : 'a'
      expect(isMistyped(key.slice(0, i) + other + key.slice(i + 1))).toBe(true)
      expect(isMistyped(key.slice(0, i) + key.slice(i + 1))).toBe(true)
      expect(isMistyped(`${key.slice(0, i)}a${key.slice(i)}`)).toBe(true)
      const swapped = key.slice(0, i - 1) + key[i]! + key[i - 1]! + key.slice(i + 1)
      if (i > 4 && swapped !== key) expect(isMistyped(swapped)).toBe(true)
    }
  })

  it('has a CRC-32 as its checksum, in seven digits of base32', () => {
    const key = `slk_${'a'.repeat(32)}`
    const bits = crc32(key).toString(2).padStart(32, '0').padEnd(35, '0')
    const digits = bits.match(/.{5}/g)!.map((five) => 'abcdefghijklmnopqrstuvwxyz234567'[parseInt(five, 2)])
    expect(isMistyped(key + digits.join(''))).toBe(false)
  })

  it('has 1 to 256 printable characters of ASCII without blanks', () => {
    for (const text of ['!', '~', 'x'.repeat(256)]) expect(isKeyText(text)).toBe(true)
    for (const text of ['', 'a b', 'a\x7f', 'ké', 'x'.repeat(257)]) expect(isKeyText(text)).toBe(false)
  })
})

describe('the look-up of a key', () => {
  const key = createKeyText()
  const keys = createApiKeys('X-Api-Key', [{ client: 'acme', sha256: hashOfKey(key) }])
  const identify = (value: string) => keys.identify(['Host', 'a', 'x-API-key', value], [], 'key')

  it('makes nothing for a call, whether the key is right or wrong: a million wrong keys take no memory', () => {
    expect(identify(key)).toBe(identify(key))
    const refusals = new Set(Array.from({ length: 1000 }, () => identify(createKeyText())))
    expect(refusals.size).toBe(1)
    const mistyped = new Set(Array.from({ length: 1000 }, () => identify(`${createKeyText()}x`)))
    expect(mistyped.size).toBe(1)
  })

  it('compares only hashes: a key that shares all but its end with another is refused as any other', () => {
    const similar = createApiKeys('x', [{ client: 'a', sha256: hashOfKey('a'.repeat(40)) }])
    const refused = (value: string) => similar.identify(['x', value], [], 'key')
    expect(refused('a'.repeat(39))).toBe(refused('b'.repeat(40)))
    expect(refused(`${'a'.repeat(39)}b`)).toBe(refused('b'.repeat(40)))
  })
})
