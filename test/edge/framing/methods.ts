import { type Framing, HOST, HIDDEN, LAST, LAST_SEEN } from './wire.ts'
import { broken, chunk, CHUNKED, END, no, request, yes } from './wire.ts'

const expectant = (line: string): Framing => ({
  name: `${line}: chunks after 100-continue`,
  bytes: [request(line, ['Expect: 100-continue', CHUNKED]), `${chunk('abc')}${END}${LAST}`],
  answers: [100, 200, 200],
  reaches: [`${line} abc`, LAST_SEEN],
})

/** Methods whose bodies have no defined meaning; only DELETE may have one on any route. */
export const bodiless: readonly Framing[] = [
  ...['GET', 'HEAD', 'OPTIONS'].flatMap((method) => [
    no(`${method}: a length`, request(`${method} /v3/CASE/x`, ['Content-Length: 3'], `abc${HIDDEN}`)),
    no(
      `${method}: a length as long as a request`,
      request(`${method} /oidc/CASE/x`, [`Content-Length: ${HIDDEN.length}`], HIDDEN),
    ),
    no(`${method}: chunks`, request(`${method} /v3/CASE/x`, [CHUNKED], `${chunk('abc')}${END}${HIDDEN}`)),
    no(
      `${method}: a request within a chunk`,
      request(`${method} /oidc/CASE/x`, [CHUNKED], chunk(HIDDEN) + END),
    ),
  ]),
  ...[
    ['DELETE', 'DELETE /v3/CASE/x'],
    ...['GET', 'HEAD', 'OPTIONS', 'DELETE'].map((method) => [method, `${method} /body/CASE/x`]),
  ].flatMap(([, line]) => [
    yes(`${line}: a length`, request(line!, ['Content-Length: 3'], 'abc'), 'abc', line),
    yes(
      `${line}: a request as its body`,
      request(line!, [`Content-Length: ${HIDDEN.length}`], HIDDEN),
      HIDDEN,
      line,
    ),
    yes(`${line}: chunks`, request(line!, [CHUNKED], `${chunk('abc')}${END}`), 'abc', line),
    yes(`${line}: a request within a chunk`, request(line!, [CHUNKED], chunk(HIDDEN) + END), HIDDEN, line),
    {
      ...yes(`${line}: byte by byte`, '', 'abc', line),
      bytes: [request(line!, [CHUNKED]), '3\r\nab', `c\r\n${END}`, LAST],
    },
    broken(`${line}: a chunk without its end`, request(line!, [CHUNKED], `3\r\nabc${END}${HIDDEN}`)),
    expectant(line!),
  ]),
  ...['GET', 'HEAD', 'DELETE', 'OPTIONS'].flatMap((method) => [
    yes(
      `${method}: no chunks but the end`,
      request(`${method} /v3/CASE/x`, [CHUNKED], END),
      '',
      `${method} /v3/CASE/x`,
    ),
    {
      ...yes(`${method}: no chunks but the end, which comes late`, '', '', `${method} /v3/CASE/x`),
      bytes: [request(`${method} /v3/CASE/x`, [CHUNKED]), '0\r', '\n\r\n', LAST],
    },
    yes(
      `${method}: length 0`,
      request(`${method} /v3/CASE/x`, ['Content-Length: 0']),
      '',
      `${method} /v3/CASE/x`,
    ),
    yes(`${method}: none`, request(`${method} /v3/CASE/x`), '', `${method} /v3/CASE/x`),
  ]),
]

export const methods: readonly Framing[] = [
  ...['PUT', 'PATCH'].map((method) =>
    yes(
      `${method}: a length`,
      request(`${method} /v3/CASE/x`, ['Content-Length: 3'], 'abc'),
      'abc',
      `${method} /v3/CASE/x`,
    ),
  ),
  no('CONNECT', `CONNECT a:443 HTTP/1.1\r\n${HOST}\r\n${HIDDEN}`, 405),
  {
    name: 'OPTIONS of no path',
    bytes: [`OPTIONS * HTTP/1.1\r\n${HOST}\r\n${LAST}`],
    answers: [400, 200],
    reaches: [LAST_SEEN],
  },
  no('CONNECT with a path', `CONNECT /oidc/CASE/x HTTP/1.1\r\n${HOST}\r\n${HIDDEN}`, 405),
  no('CONNECT with a body', `CONNECT a:443 HTTP/1.1\r\n${HOST}Content-Length: 3\r\n\r\nabc${HIDDEN}`, 405),
  ...['TRACE', 'PROPFIND', 'MKCOL', 'LOCK', 'SEARCH', 'PURGE', 'REPORT', 'M-SEARCH', 'SOURCE', 'QUERY'].map(
    (method): Framing => ({
      name: `${method} is not taken`,
      bytes: [`${method} /oidc/CASE/x HTTP/1.1\r\n${HOST}\r\n${LAST}`],
      answers: [405, 200],
      reaches: [LAST_SEEN],
    }),
  ),
  no('TRACE with a body', `TRACE /oidc/CASE/x HTTP/1.1\r\n${HOST}Content-Length: 9\r\n\r\nabc`, 405),
]
