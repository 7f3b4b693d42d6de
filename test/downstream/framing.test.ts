import { describe, expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { bodyLength } from '../../src/downstream/framing.ts'

/** What Node's parser refuses before it, too, is tested here only; the rest also at the socket, in edge/framing. */
describe('the framing of a body', () => {
  const lengthOf = (method: string, httpVersion: string, headers: Record<string, string>) =>
    bodyLength(method, { httpVersion, headers })

  it.each([
    ['POST', {}, 0],
    ['POST', { 'content-length': '0' }, 0],
    ['POST', { 'content-length': '17' }, 17],
    ['POST', { 'content-length': '999999999999999' }, 999_999_999_999_999],
    ['POST', { 'transfer-encoding': 'chunked' }, undefined],
    ['PATCH', { 'transfer-encoding': 'CHUNKED' }, undefined],
    ['GET', { 'content-length': '0' }, 0],
  ])('a %s with %j is valid', (method, headers, length) => {
    expect(lengthOf(method, '1.1', headers)).toBe(length)
  })

  const none: readonly (readonly [string, string, Record<string, string>])[] = [
    ['POST', '1.1', { 'content-length': '017' }],
    ['POST', '1.1', { 'content-length': '1e1' }],
    ['POST', '1.1', { 'content-length': ' 1' }],
    ['POST', '1.1', { 'content-length': '1, 1' }],
    ['POST', '1.1', { 'content-length': '1000000000000000' }],
    ['POST', '1.1', { 'content-length': '' }],
    ['POST', '1.1', { 'content-length': '3', 'transfer-encoding': 'chunked' }],
    ['POST', '1.1', { 'transfer-encoding': '' }],
    ['POST', '1.0', { 'transfer-encoding': 'chunked' }],
    ['POST', '2.0', {}],
    ['GET', '0.9', {}],
    ...['GET', 'HEAD', 'DELETE', 'OPTIONS'].flatMap((method) => [
      [method, '1.1', { 'content-length': '1' }] as const,
      [method, '1.1', { 'transfer-encoding': 'chunked' }] as const,
    ]),
  ]
  it.each(none)('a %s in HTTP/%s with %j is refused, and closes the socket', (method, version, headers) => {
    const refusal = lengthOf(method, version, headers)
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
    const refusal = lengthOf('POST', '1.1', { 'transfer-encoding': coding })
    expect(refusal).toMatchObject({ status, headers: { Connection: 'close' } })
  })
})
