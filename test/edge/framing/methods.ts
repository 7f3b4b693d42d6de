import { type Framing, HOST, HIDDEN, LAST, LAST_SEEN, request, chunk, END, CHUNKED, no, yes } from './wire.ts'

export const bodiless: readonly Framing[] = ['GET', 'HEAD', 'DELETE', 'OPTIONS'].flatMap((method) => [
  no(`${method}: a length`, request(`${method} /v3/CASE/x`, ['Content-Length: 3'], `abc${HIDDEN}`)),
  no(
    `${method}: a length as long as a request`,
    request(`${method} /oidc/CASE/x`, [`Content-Length: ${HIDDEN.length}`], HIDDEN),
  ),
  no(`${method}: chunks`, request(`${method} /v3/CASE/x`, [CHUNKED], `${chunk('abc')}${END}${HIDDEN}`)),
  no(
    `${method}: no chunks but the end, and a request behind it`,
    request(`${method} /oidc/CASE/x`, [CHUNKED], END + HIDDEN),
  ),
  no(
    `${method}: a request within a chunk`,
    request(`${method} /oidc/CASE/x`, [CHUNKED], chunk(HIDDEN) + END),
  ),
  yes(
    `${method}: length 0`,
    request(`${method} /v3/CASE/x`, ['Content-Length: 0']),
    '',
    `${method} /v3/CASE/x`,
  ),
  yes(`${method}: none`, request(`${method} /v3/CASE/x`), '', `${method} /v3/CASE/x`),
])

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
