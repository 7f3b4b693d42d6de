import { describe, expect, it } from 'vitest'
import { startFront } from '../helpers/front.ts'
import { raw } from '../helpers/raw.ts'
import { startRawUpstream } from '../helpers/upstream.ts'

/** Bytes that a caller gets for a response of the upstream, without the fields that Node adds. */
async function answering(says: string, method = 'GET'): Promise<{ head: string[]; body: string }> {
  const back = await startRawUpstream((socket) => socket.write(says, 'latin1'))
  const front = await startFront(back.url, { timeoutMs: 2000 })
  const { text } = await raw(front.port, `${method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
  const end = text.indexOf('\r\n\r\n')
  const head = text.slice(0, end).split('\r\n')
  const added = /^(?:Date|Connection|Keep-Alive|X-Request-Id): /
  return { head: head.filter((line) => !added.test(line)), body: text.slice(end + 4) }
}

const OK = 'HTTP/1.1 200 OK'
const answer = (fields: readonly string[], body = 'hello') =>
  [OK, ...fields, `Content-Length: ${body.length}`, '', body].join('\r\n')
const fieldOf = (name: string, bytes: number) => `${name}: ${'x'.repeat(bytes)}`
const LENGTH = 'Content-Length: 5'

describe('the head of a response', () => {
  it.each<[string, string[], string[]]>([
    ['keeps names, values and order', ['x-B: 1', 'X-a:  2 ', 'X-A: 3'], ['x-B: 1', 'X-a: 2', 'X-A: 3']],
    ['keeps bytes outside ASCII', ['X: b\u00e9\u00ff'], ['X: b\u00e9\u00ff']],
    ['keeps empty values', ['X-Empty:'], ['X-Empty: ']],
    ['keeps 60 kB', [fieldOf('X', 60_000)], [fieldOf('X', 60_000)]],
    [
      'loses what is of this hop',
      ['Keep-Alive: timeout=5', 'Proxy-Connection: x', 'TE: x', 'Upgrade: h2c'],
      [],
    ],
    ['loses what is for proxies', ['Proxy-Authenticate: Basic', 'Proxy-Authentication-Info: x'], []],
    ['loses what Connection names', ['Connection: X-A, x-b', 'X-A: 1', 'X-B: 2', 'X-C: 3'], ['X-C: 3']],
    ['loses what each Connection names', ['Connection: X-A', 'Connection: X-B', 'X-A: 1', 'X-B: 2'], []],
    ['keeps its length, though Connection names it', ['Connection: Content-Length'], []],
    ['loses Trailer', ['Trailer: X-End'], []],
  ])('the head of a response %s', async (_, fields, kept) => {
    expect(await answering(answer(fields))).toEqual({ head: [OK, LENGTH, ...kept], body: 'hello' })
  })

  it('a response has the usual reason if that of the upstream has a control byte', async () => {
    const { head } = await answering(answer([]).replace('OK', 'O\u0001Kay'))
    expect(head[0]).toBe(OK)
  })

  it('the head of a response keeps every one of 1600 fields', async () => {
    const fields = Array.from({ length: 1600 }, (_, i) => `A${i}: b`)
    const { head } = await answering(answer(fields))
    expect(head).toEqual([OK, LENGTH, ...fields])
  })

  it.each([
    ['has one field that is too long', answer([fieldOf('X', 66_000)])],
    ['has too many fields', answer(Array.from({ length: 12_000 }, (_, i) => `X-${i}: y`))],
    ['never ends', `${OK}\r\n${Array.from({ length: 20_000 }, (_, i) => `X-${i}: y\r\n`).join('')}`],
    ['has a reason that never ends', `HTTP/1.1 200 ${'x'.repeat(100_000)}`],
    [
      'follows endless interim ones',
      `${'HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n'.repeat(20)}${OK}\r\n${fieldOf('X', 66_000)}\r\n\r\n`,
    ],
    ['has a field without name', answer([': x'])],
    ['has a name with a blank', answer(['X : y'])],
    ['has a name with a control byte', answer(['X\u0001: y'])],
    ['has a value with a control byte', answer(['X: y\u0000z'])],
    ['has a value with only a line feed', answer(['X: y\nSet-Cookie: z'])],
    ['has a value with only a carriage return', answer(['X: y\rSet-Cookie: z'])],
    ['has a coding that was not requested', `${OK}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['has a coding that is none', `${OK}\r\nTransfer-Encoding: identity\r\n\r\nhello`],
    ['is of another version', answer([]).replace('1.1', '2.0')],
    ['switches protocols without Upgrade', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
    ['has a status that is none', answer([]).replace('200', '099')],
    ['has a status of two digits', answer([]).replace('200', '20')],
    ['has a status of four digits', answer([]).replace('200', '2000')],
  ])('a caller gets a 502 if the head of the response %s', async (_, says) => {
    expect((await answering(says)).head[0]).toBe('HTTP/1.1 502 Bad Gateway')
  })
})

describe('a response', () => {
  it.each([
    ['100', 'HTTP/1.1 100 Continue\r\n\r\n'],
    [
      '102, 103 and 199',
      'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 199 What\r\n\r\n',
    ],
  ])('a caller gets only the final response, also after %s', async (_, before) => {
    expect(await answering(before + answer([]))).toEqual({ head: [OK, LENGTH], body: 'hello' })
  })

  it.each([
    ['GET', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello', ['HTTP/1.1 204 No Content']],
    [
      'GET',
      'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
      ['HTTP/1.1 204 No Content'],
    ],
    [
      'GET',
      'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello',
      ['HTTP/1.1 304 Not Modified', LENGTH],
    ],
    ['HEAD', answer([]), [OK, LENGTH]],
    ['HEAD', `${OK}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`, [OK]],
  ])('a response to %s without a body gets none: %j', async (method, says, head) => {
    const got = await answering(says, method)
    expect({ ...got, head: got.head.filter((line) => line !== 'Transfer-Encoding: chunked') }).toEqual({
      head,
      body: '',
    })
  })

  it('a response loses its trailers', async () => {
    const says = `${OK}\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: 1\r\nSet-Cookie: a=b\r\n\r\n`
    expect(await answering(says)).toEqual({
      head: [OK, 'Transfer-Encoding: chunked'],
      body: '5\r\nhello\r\n0\r\n\r\n',
    })
  })
})
