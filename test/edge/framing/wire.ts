/** What a caller sends over a bare socket, and what must come of it. */
export interface Framing {
  readonly name: string
  /** Pieces that follow each other after a moment. `CASE` stands for four digits, `TOKEN` for an access token. */
  readonly bytes: readonly string[]
  /** The status of every answer, in order; a request answered otherwise was read otherwise. */
  readonly answers: readonly number[]
  /** Whole requests at the upstream: method, target and body. */
  readonly reaches?: readonly string[]
  /** How many calls the client was charged; as many as reached the Data API unless told. */
  readonly charges?: number
  /** Do some versions of Node refuse it with 400? */
  readonly orRefused?: boolean
  /** Does the caller end its side behind the bytes? */
  readonly ends?: boolean
}

export const HOST = 'Host: a\r\n'
export const AUTH = `${HOST}Authorization: Bearer TOKEN\r\n`
/** What must never be taken for a request. */
export const HIDDEN = 'GET /oidc/CASE/hidden HTTP/1.1\r\nHost: a\r\n\r\n'
/** An honest request that ends its socket. */
export const LAST = `GET /v3/CASE/last HTTP/1.1\r\n${AUTH}Connection: close\r\n\r\n`
/** How the upstream sees `LAST`. */
export const LAST_SEEN = 'GET /v3/CASE/last '

/** A request with a token. */
export const request = (line: string, fields: readonly string[] = [], body = ''): string =>
  `${line} HTTP/1.1\r\n${AUTH}${fields.map((field) => `${field}\r\n`).join('')}\r\n${body}`
export const post = (fields: readonly string[], body = ''): string => request('POST /v3/CASE/x', fields, body)
export const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`
export const END = '0\r\n\r\n'
export const CHUNKED = 'Transfer-Encoding: chunked'
export const chunked = (body: string, ...more: string[]): string => post([CHUNKED, ...more], body)

/** Refused, and nothing behind it is read. */
export const no = (name: string, bytes: string, status = 400): Framing => ({
  name,
  bytes: [bytes],
  answers: [status],
})
/** Refused in the middle of its body: the call counts, the upstream never sees it whole. */
export const broken = (name: string, bytes: string, status = 400): Framing => ({
  ...no(name, bytes, status),
  charges: 1,
})
/** Taken, with this body, and the next request on the same socket too. */
export const yes = (name: string, bytes: string, body = '', line = 'POST /v3/CASE/x'): Framing => ({
  name,
  bytes: [bytes + LAST],
  answers: [200, 200],
  reaches: [`${line} ${body}`, LAST_SEEN],
})
/** Taken so, or refused: versions of Node differ. */
export const perhaps = (...from: Parameters<typeof yes>): Framing => ({ ...yes(...from), orRefused: true })
