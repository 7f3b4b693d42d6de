import { describe, expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { bodyLength, mayBeUnread } from '../../src/downstream/framing.ts'

/** What Node's parser refuses before it, too, is tested here only; the rest also at the socket, in edge/framing. */
it.each([
  ['GET', 3, true],
  ['DELETE', undefined, true],
  ['HEAD', 0, false],
  ['POST', 3, false],
])('a %s with a body of %s bytes may be left unread: %s', (method, length, mayBe) => {
  expect(mayBeUnread(method, length)).toBe(mayBe)
})

describe('the framing of a body', () => {
  const lengthOf = (httpVersion: string, headers: Record<string, string>) =>
    bodyLength({ httpVersion, headers })

  it.each([
    [{}, 0],
    [{ 'content-length': '0' }, 0],
    [{ 'content-length': '17' }, 17],
    [{ 'content-length': '999999999999999' }, 999_999_999_999_999],
    [{ 'transfer-encoding': 'chunked' }, undefined],
    [{ 'transfer-encoding': 'CHUNKED' }, undefined],
    [{ 'content-length': '0' }, 0],
  ])('%j is valid', (headers: Record<string, string>, length) => {
    expect(lengthOf('1.1', headers)).toBe(length)
  })

  const none: readonly (readonly [string, Record<string, string>])[] = [
    ['1.1', { 'content-length': '017' }],
    ['1.1', { 'content-length': '1e1' }],
    ['1.1', { 'content-length': ' 1' }],
    ['1.1', { 'content-length': '1, 1' }],
    ['1.1', { 'content-length': '1000000000000000' }],
    ['1.1', { 'content-length': '' }],
    ['1.1', { 'content-length': '3', 'transfer-encoding': 'chunked' }],
    ['1.1', { 'transfer-encoding': '' }],
    ['1.0', { 'transfer-encoding': 'chunked' }],
    ['2.0', {}],
    ['0.9', {}],
  ]
  it.each(none)('HTTP/%s with %j is refused, and closes the socket', (version, headers) => {
    const refusal = lengthOf(version, headers)
    expect(refusal).toBeInstanceOf(Refusal)
    expect(refusal).toMatchObject({ status: 400, headers: { Connection: 'close' } })
  })

  it.each([
    ['gzip, chunked', 501],
    ['identity,chunked', 501],
    ['a, b , CHUNKED', 501],
    ['chunked, chunked', 400],
    ['gzip, chunked, chunked', 400],
    ['chunked, gzip', 400],
    ['gzip', 400],
    [', chunked', 400],
    ['gzip;q=1, chunked', 400],
  ])('the transfer coding %j is refused with %i', (coding, status) => {
    const refusal = lengthOf('1.1', { 'transfer-encoding': coding })
    expect(refusal).toMatchObject({ status, headers: { Connection: 'close' } })
  })
})
