import { describe, expect, it } from 'vitest'
import { type Actual, sourceOf, Unsettled } from '../../src/actual/actual.ts'
import { namesOf } from '../../src/actual/json-end.ts'
import { findInBody } from '../../src/actual/body-end.ts'
import { parsePath } from '../../src/actual/path.ts'
import { pointsOf, pointsOfBytes } from '../../src/actual/points.ts'
import { ResponseReading } from '../../src/actual/response-reading.ts'
import { Tail } from '../../src/actual/tail.ts'

describe('a path', () => {
  it.each([
    ['tokens', ['tokens']],
    ['usage.total_tokens', ['usage', 'total_tokens']],
    ['usage."total.tokens"', ['usage', 'total.tokens']],
    ['"a b"."\\u00e4"."c\\"d"', ['a b', 'ä', 'c"d']],
    ['größe.日本-1', ['größe', '日本-1']],
    ['"0"."".x', ['0', '', 'x']],
    ['extensions.cost.1st', ['extensions', 'cost', '1st']],
  ])('%s has names', (text, names) => {
    expect(parsePath(text)).toEqual(names)
  })

  it.each([
    ['', /^ends without a name/],
    ['.', /^has an empty name/],
    ['a.', /^ends without a name/],
    ['a..b', /^has an empty name/],
    ['$.a', /^begins with "\$"/],
    ['a[0]', /^leads into a list/],
    ['a.0.b', /^leads into a list/],
    ['a.0', /^leads into a list/],
    ['a b', /^has " " outside of quotes/],
    ['a/b', /^has "\/" outside of quotes/],
    ['a.*', /^has "\*" outside of quotes/],
    ['"a', /^has "\\"" outside of quotes/],
    ['"a"b', /^has "b" outside of quotes/],
    ['"\\x"', /^has a name in quotes that JSON does not read/],
    ['"\t"', /^has a name in quotes that JSON does not read/],
    [Array(11).fill('a').join('.'), /^has more than 10 names/],
    ['a'.repeat(201), /^is longer than 200/],
  ])('%j is not a path', (text, mistake) => {
    expect(parsePath(text)).toMatch(mistake)
  })
})

describe('points', () => {
  it.each([
    ['0', 0],
    ['-0', 0],
    ['0.0', 0],
    ['12', 12],
    ['12.000', 12],
    ['12.01', 13],
    ['1e3', 1000],
    ['1.5E+1', 15],
    ['1e-400', 0],
    ['1099511627776', 2 ** 40],
  ])('%s are %s', (text, points) => {
    expect(Object.is(pointsOf(text), points)).toBe(true)
  })

  it.each(['', ' ', 'NaN', '-1', '-0.5', '1099511627776.5', '1099511627777', '1e400', '-1e400'])(
    '%j are none',
    (text) => expect(pointsOf(text)).toBeUndefined(),
  )

  it.each(['Infinity', '0x10', '1_000', '01', '+1', '.5', '1.', '12 tokens', '1,2', 'true', '9'.repeat(101)])(
    '%j are none',
    (text) => expect(pointsOf(text)).toBeUndefined(),
  )

  it.each([
    [0, 0],
    [1, 1],
    [1024, 1],
    [1025, 2],
    [2 ** 60, 2 ** 40],
  ])('%s bytes are %s', (bytes, points) => {
    expect(pointsOfBytes(bytes)).toBe(points)
  })
})

describe('the end of a body', () => {
  const read = (chunks: readonly Buffer[]) => {
    const tail = new Tail()
    for (const chunk of chunks) tail.push(chunk)
    return tail
  }

  it('has the last bytes, of chunks of any size', () => {
    for (const size of [1, 7, 64, 1000, 65_535, 65_536, 65_537, 300_000]) {
      const body = Buffer.from(Array.from({ length: 150_000 }, (_, i) => (i * 31) % 251))
      const chunks = Array.from({ length: Math.ceil(body.length / size) }, (_, i) =>
        body.subarray(i * size, (i + 1) * size),
      )
      const tail = read(chunks)
      expect(tail.total).toBe(body.length)
      for (const max of [1, 4096, 65_536, 1e9])
        expect(tail.last(max).equals(body.subarray(-Math.min(max, 65_536)))).toBe(true)
    }
  })

  it('copies only the bytes that are asked for, and none of a single chunk', () => {
    const long = Buffer.alloc(2 ** 20)
    expect(read([long, Buffer.from('abc')]).last(2048).buffer.byteLength).toBeLessThan(2 ** 17)
    expect(read([long]).last(2048).buffer).toBe(long.buffer)
    expect(read([Buffer.alloc(10), long]).last(2048).buffer).toBe(long.buffer)
  })

  it('is the whole of a short body, and empty without one', () => {
    expect(
      read([Buffer.from('a'), Buffer.alloc(0), Buffer.from('bc')])
        .last(4096)
        .toString(),
    ).toBe('abc')
    expect(read([]).last(4096)).toHaveLength(0)
    expect(read([Buffer.alloc(0)]).last(4096)).toHaveLength(0)
  })

  it('has a number wherever the body is split, in UTF-8 and events too', () => {
    const json = Buffer.from('{"text":"ü日\\"","usage":{"größe":12},"end":"é"}')
    const events = Buffer.from(
      'data: {"usage":{"größe":12}}\r\n\r\ndata: {"text":"é"}\r\n\r\ndata: [DONE]\r\n\r\n',
    )
    for (const [body, isEventStream] of [
      [json, false],
      [events, true],
    ] as const)
      for (let i = 0; i <= body.length; i++)
        for (let j = i; j <= body.length; j += 5) {
          const tail = read([body.subarray(0, i), body.subarray(i, j), body.subarray(j)])
          expect(findInBody(tail, namesOf(['usage', 'größe']), isEventStream)).toBe(12)
        }
  })

  it.each([0, 2000, 2048, 4096, 60_000, 65_000])(
    'has a number %s bytes before its end, after a megabyte',
    (after) => {
      const rest = '\\"'.repeat(after / 2)
      const body = Buffer.from(`{"data":"${'x'.repeat(2 ** 20)}","usage":{"total":5},"rest":"${rest}"}`)
      expect(findInBody(read([body]), namesOf(['usage', 'total']), false)).toBe(5)
      const event = Buffer.from(`data: {"usage":{"total":5}}\n\ndata: ${'x'.repeat(after)}\n\n`)
      expect(
        findInBody(
          read([Buffer.alloc(2 ** 20), Buffer.from('\n\n'), event]),
          namesOf(['usage', 'total']),
          true,
        ),
      ).toBe(5)
    },
  )

  it('has no number that is more than 64 kB before it', () => {
    const body = Buffer.from(`{"usage":{"total":5},"rest":"${'x'.repeat(65_536)}"}`)
    expect(findInBody(read([body]), namesOf(['usage', 'total']), false)).toBeUndefined()
  })
})

describe('what a call used', () => {
  const JSON_TYPE = ['Content-Type', 'application/json']
  const BODIES = { request: 1025, response: 1 }

  function used(actual: Actual, head: readonly string[], body = '', status = 200, isBodiless = false) {
    const reading = new ResponseReading(actual.json !== undefined)
    reading.readHead(status, head, isBodiless)
    reading.readChunk(Buffer.from(body))
    const found = reading.ofWhole(sourceOf(actual), BODIES)
    return found instanceof Unsettled ? found.reason : found
  }

  const path = { json: 'usage.total' }
  const BODY = '{"usage":{"total":12}}'
  it.each<[string, Actual, readonly string[], string, number]>([
    ['a body', path, JSON_TYPE, BODY, 12],
    ['a body without a type', path, [], BODY, 12],
    ['a body of a type of its own', path, ['Content-Type', 'application/problem+JSON ; v=1'], BODY, 12],
    ['lines', path, ['Content-Type', 'application/x-ndjson'], BODY, 12],
    ['events', path, ['content-type', 'Text/Event-Stream; charset=utf-8'], `data: ${BODY}\n\n`, 12],
    ['a body that is not compressed', path, ['Content-Encoding', 'Identity'], BODY, 12],
    ['a field', { field: 'X-Usage' }, ['x-usage', ' 12.5 '], '', 13],
    [
      'a field of a compressed body',
      { field: 'X-Usage' },
      ['X-USAGE', '0', 'Content-Encoding', 'gzip'],
      '',
      0,
    ],
    ['the request', { bytes: 'request' }, [], '', 2],
    ['the response', { bytes: 'response' }, [], '', 1],
    ['both bodies, together', { bytes: 'both' }, [], '', 2],
  ])('is in %s', (_, actual, head, body, points) => {
    expect(used(actual, head, body)).toBe(points)
  })

  it.each<[string, Actual, readonly string[], string]>([
    ['the end of the response has no usage.total', path, JSON_TYPE, '{"error":"x"}'],
    ['the end of the response has no usage.total', path, JSON_TYPE, '{"usage":{"total":null}}'],
    ['usage.total is not a number from 0 to 2^40', path, JSON_TYPE, '{"usage":{"total":"12"}}'],
    ['usage.total is not a number from 0 to 2^40', path, JSON_TYPE, '{"usage":{"total":-1}}'],
    ['usage.total is not a number from 0 to 2^40', path, JSON_TYPE, '{"usage":{"total":1e400}}'],
    ['usage.total is not a number from 0 to 2^40', path, JSON_TYPE, '{"usage":{"total":NaN}}'],
    ['the response is compressed, although that was not asked for', path, ['content-encoding', 'gzip'], BODY],
    [
      'the response is compressed, although that was not asked for',
      path,
      ['content-encoding', 'identity', 'content-encoding', 'br'],
      BODY,
    ],
    [
      'the response is neither JSON nor an event stream',
      path,
      ['content-type', 'text/html; charset=utf-8'],
      BODY,
    ],
    ['the response is neither JSON nor an event stream', path, ['content-type', 'application/jsonp'], BODY],
    ['the response has no field X-Usage', { field: 'X-Usage' }, ['X-Usages', '1'], ''],
    [
      'the response has the field X-Usage several times',
      { field: 'X-Usage' },
      ['x-usage', '1', 'X-Usage', '1'],
      '',
    ],
    ['the field X-Usage is not a number from 0 to 2^40', { field: 'X-Usage' }, ['x-usage', '1, 2'], ''],
    ['the field X-Usage is not a number from 0 to 2^40', { field: 'X-Usage' }, ['x-usage', ''], ''],
  ])('is unknown: %s', (reason, actual, head, body) => {
    expect(used(actual, head, body)).toBe(reason)
  })

  it('is unknown without a body, and of a part of one', () => {
    expect(used(path, JSON_TYPE, '', 200, true)).toBe('the response has no body')
    expect(used(path, JSON_TYPE, BODY, 206)).toBe('the response is a part of a body')
  })
})
