/** The bytes that a caller sends over a bare socket, and the expected outcome. */
export interface Framing {
  readonly name: string
  /** Pieces that follow each other after a moment. `CASE` is replaced by four digits, `TOKEN` by an access token. */
  readonly bytes: readonly string[]
  /** The status of every response, in order; another status shows another parse. */
  readonly answers: readonly number[]
  /** Complete requests at the upstream: method, target and body. */
  readonly reaches?: readonly string[]
  /** Calls charged to the client; default: those that reached the Data API. */
  readonly charges?: number
  /** True if some versions of Node refuse it with 400. */
  readonly orRefused?: boolean
  /** True if the caller ends its side after the bytes. */
  readonly ends?: boolean
}

export const HOST = 'Host: a\r\n'
export const AUTH = `${HOST}Authorization: Bearer TOKEN\r\n`
/** Bytes that must not be parsed as a request. */
export const HIDDEN = 'GET /oidc/CASE/hidden HTTP/1.1\r\nHost: a\r\n\r\n'
/** A valid request that closes its socket. */
export const LAST = `GET /v3/CASE/last HTTP/1.1\r\n${AUTH}Connection: close\r\n\r\n`
/** `LAST` as the upstream receives it. */
export const LAST_SEEN = 'GET /v3/CASE/last '

/** A request with a token. */
export const request = (line: string, fields: readonly string[] = [], body = ''): string =>
  `${line} HTTP/1.1\r\n${AUTH}${fields.map((field) => `${field}\r\n`).join('')}\r\n${body}`
export const post = (fields: readonly string[], body = ''): string => request('POST /v3/CASE/x', fields, body)
export const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`
export const END = '0\r\n\r\n'
export const CHUNKED = 'Transfer-Encoding: chunked'
export const chunked = (body: string, ...more: string[]): string => post([CHUNKED, ...more], body)

/** Refused, and the rest is not parsed. */
export const no = (name: string, bytes: string, status = 400): Framing => ({
  name,
  bytes: [bytes],
  answers: [status],
})
/** Refused in the middle of its body: the call counts, the upstream never receives it completely. */
export const broken = (name: string, bytes: string, status = 400): Framing => ({
  ...no(name, bytes, status),
  charges: 1,
})
/** Accepted with this body, and so is the next request on the same socket. */
export const yes = (name: string, bytes: string, body = '', line = 'POST /v3/CASE/x'): Framing => ({
  name,
  bytes: [bytes + LAST],
  answers: [200, 200],
  reaches: [`${line} ${body}`, LAST_SEEN],
})
/** Accepted like this, or refused: versions of Node differ. */
export const perhaps = (...from: Parameters<typeof yes>): Framing => ({ ...yes(...from), orRefused: true })
