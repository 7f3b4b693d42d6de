import {
  type Framing,
  HOST,
  HIDDEN,
  LAST,
  LAST_SEEN,
  request,
  post,
  chunk,
  END,
  CHUNKED,
  no,
  yes,
} from './wire.ts'

const WEBSOCKET = [
  ...['Connection: Upgrade', 'Upgrade: websocket'],
  ...['Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='],
]

export const expectations: readonly Framing[] = [
  {
    name: 'expect: 100-continue is answered, and then the body taken',
    bytes: [post(['Expect: 100-continue', 'Content-Length: 3']), `abc${LAST}`],
    answers: [100, 200, 200],
    reaches: ['POST /v3/CASE/x abc', LAST_SEEN],
  },
  {
    name: 'expect: 100-continue, and the body at once',
    bytes: [post(['Expect: 100-continue', 'Content-Length: 3'], `abc${LAST}`)],
    answers: [100, 200, 200],
    reaches: ['POST /v3/CASE/x abc', LAST_SEEN],
  },
  {
    name: 'expect: 100-Continue in odd case, with chunks',
    bytes: [post(['expect: 100-CONTINUE', CHUNKED]), `${chunk('abc')}${END}${LAST}`],
    answers: [100, 200, 200],
    reaches: ['POST /v3/CASE/x abc', LAST_SEEN],
  },
  no(
    'expect: 100-continue for a body that no GET has',
    request('GET /v3/CASE/x', ['Expect: 100-continue', 'Content-Length: 3'], `abc${HIDDEN}`),
  ),
  no(
    'expect: 100-continue for two framings',
    post(['Expect: 100-continue', 'Content-Length: 3', CHUNKED], END + HIDDEN),
  ),
  no(
    'expect: 100-continue without a token',
    `POST /v3/CASE/x HTTP/1.1\r\n${HOST}Expect: 100-continue\r\nContent-Length: ${HIDDEN.length}\r\n\r\n`,
    401,
  ),
  no('expect: 100-continue for too long a body', post(['Expect: 100-continue', 'Content-Length: 3000']), 413),
  ...(
    [
      ['something else', 'Expect: x'],
      ['a list', 'Expect: 100-continue, x'],
      ['only a number', 'Expect: 100'],
      ['nothing', 'Expect:'],
      ['200-ok', 'Expect: 200-ok'],
    ] as const
  ).map(([name, field]): Framing => ({
    name: `expect: ${name} is passed over`,
    bytes: [post([field, 'Content-Length: 3'], `abc${LAST}`)],
    answers: field.includes('100-continue') ? [100, 200, 200] : [200, 200],
    reaches: ['POST /v3/CASE/x abc', LAST_SEEN],
  })),
]

/** A body longer than the gateway buffers before it forwards a request. */
const LONG = 'x'.repeat(100_000)

export const sockets: readonly Framing[] = [
  {
    name: 'several: good ones, in one piece',
    bytes: [
      post(['Content-Length: 1'], 'a') + post([CHUNKED], chunk('b') + END) + request('GET /v3/CASE/y') + LAST,
    ],
    answers: [200, 200, 200, 200],
    reaches: ['POST /v3/CASE/x a', 'POST /v3/CASE/x b', 'GET /v3/CASE/y ', LAST_SEEN],
  },
  {
    name: 'several: a refused one between good ones',
    bytes: [`${request('GET /v3/CASE/y')}GET /v3/CASE/x HTTP/1.1\r\n${HOST}\r\n${LAST}`],
    answers: [200, 401, 200],
    reaches: ['GET /v3/CASE/y ', LAST_SEEN],
  },
  {
    name: 'several: garbage behind a good one',
    bytes: [`${request('GET /v3/CASE/y')}GARBAGE\r\n\r\n${HIDDEN}`],
    answers: [200, 400],
    reaches: ['GET /v3/CASE/y '],
  },
  {
    name: 'several: two framings behind a good one',
    bytes: [request('GET /v3/CASE/y') + post(['Content-Length: 3', CHUNKED], END + HIDDEN)],
    answers: [200, 400],
    reaches: ['GET /v3/CASE/y '],
  },
  {
    name: 'several: an odd coding behind a good one',
    bytes: [request('GET /v3/CASE/y') + post(['Transfer-Encoding: identity, chunked'], END + HIDDEN)],
    answers: [200, 501],
    reaches: ['GET /v3/CASE/y '],
  },
  {
    name: 'several: none behind Connection: close',
    bytes: [LAST + HIDDEN],
    answers: [200],
    reaches: [LAST_SEEN],
  },
  {
    name: 'several: none behind HTTP/1.0',
    bytes: [request('GET /v3/CASE/y').replace('1.1', '1.0') + HIDDEN],
    answers: [200],
    reaches: ['GET /v3/CASE/y '],
  },
  yes(
    'several: another behind HTTP/1.0 that is kept alive',
    request('GET /v3/CASE/y', ['Connection: keep-alive']).replace('1.1', '1.0'),
    '',
    'GET /v3/CASE/y',
  ),
  {
    name: 'several: none behind two Hosts',
    bytes: [post(['Host: b']) + HIDDEN],
    answers: [400],
  },
  {
    name: 'several: none behind an upload that was answered early',
    bytes: [request('POST /v3/CASE/early', ['Content-Length: 200000'], LONG + HIDDEN)],
    answers: [200],
    charges: 1,
  },
  {
    name: 'several: none behind chunks that were answered early',
    bytes: [request('POST /v3/CASE/early', [CHUNKED], chunk(LONG + HIDDEN)), `fff\r\n${HIDDEN}`],
    answers: [200],
    charges: 1,
  },
  no(
    'several: none within the body of what was refused',
    `POST /v3/CASE/x HTTP/1.1\r\n${HOST}Content-Length: ${HIDDEN.length + 9}\r\n\r\n${HIDDEN}`,
    401,
  ),
  no(
    'several: none within the chunks of what was refused',
    `POST /v3/CASE/x HTTP/1.1\r\n${HOST}${CHUNKED}\r\n\r\n${chunk('abc')}ff\r\n${HIDDEN}`,
    401,
  ),
  no(
    'several: none within the body of what no method takes',
    request('POST /nowhere/CASE', [`Content-Length: ${HIDDEN.length + 9}`], HIDDEN),
    404,
  ),
  {
    name: 'upgrade: websocket is refused, and the socket ends',
    bytes: [request('GET /v3/CASE/y', WEBSOCKET) + HIDDEN.slice(0, 20), HIDDEN.slice(20) + HIDDEN],
    answers: [501],
  },
  ...(
    [
      ['h2c', ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__']],
      ['TLS/1.0', ['Connection: upgrade', 'Upgrade: TLS/1.0']],
    ] as const
  ).map(([name, fields]): Framing => ({
    name: `upgrade: ${name} is not switched to, and the socket ends`,
    bytes: [request('GET /v3/CASE/y', fields) + HIDDEN.slice(0, 20), HIDDEN.slice(20) + HIDDEN],
    answers: [200],
    reaches: ['GET /v3/CASE/y '],
  })),
  {
    name: 'upgrade: with a body, and the socket ends',
    bytes: [post(['Connection: Upgrade', 'Upgrade: websocket', 'Content-Length: 3'], `abc${HIDDEN}`), HIDDEN],
    answers: [501],
  },
  {
    name: 'upgrade: without Connection, and the socket ends',
    bytes: [request('GET /v3/CASE/y', ['Upgrade: h2c']) + HIDDEN],
    answers: [200],
    reaches: ['GET /v3/CASE/y '],
  },
  yes(
    'connection: cannot name away what was judged',
    post(
      [
        'Connection: keep-alive, X-Foo, authorization, host, content-length, content-type',
        'X-Foo: y',
        'Content-Length: 3',
      ],
      'abc',
    ),
    'abc',
  ),
  yes(
    'connection: cannot name away the coding',
    post(['Connection: keep-alive, transfer-encoding', CHUNKED], chunk('abc') + END),
    'abc',
  ),
  yes('connection: odd lists', post(['Connection: ,, ,keep-alive,', 'Connection: x', 'X: y'])),
  {
    name: 'connection: close among others ends the socket',
    bytes: [post(['Connection: X-Foo, close'], HIDDEN)],
    answers: [200],
    reaches: ['POST /v3/CASE/x '],
  },
  yes(
    'hop: fields of the hop end here',
    post([
      'TE: trailers',
      'Keep-Alive: timeout=9',
      'Proxy-Connection: keep-alive',
      'Proxy-Authorization: Basic x',
    ]),
  ),
]
