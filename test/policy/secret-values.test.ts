import { hash } from 'node:crypto'
import { expect, it } from 'vitest'
import { digestOf, isDigest, isShortForm, shortenDigest } from '../../src/policy/secret-values.ts'

it.each([
  ['de89370400440532013000', 'de89'],
  ['abcde', 'abcd'],
  // Four characters or fewer would be the whole value.
  ['abcd', ''],
  ['', ''],
  // Half of a surrogate pair is not a character.
  ['abc\u{1f600}d', 'abc'],
  ['a…b…c', 'a…b…'],
])('the digest of %j begins with %j, and has the whole SHA-256', (value, beginning) => {
  const digest = digestOf(value)
  expect(digest).toBe(`${beginning}…${hash('sha256', value)}`)
  expect([isDigest(digest), isShortForm(digest)]).toEqual([true, false])
  const short = shortenDigest(digest)
  expect(short).toBe(`${beginning}…${hash('sha256', value).slice(0, 8)}`)
  expect([isDigest(short), isShortForm(short)]).toEqual([false, true])
})
