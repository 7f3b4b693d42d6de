/** Every way in which the gateway itself says no. Words for the caller in `message`, words for the log in `cause`. */

/** The stable names of the Data API's error envelope, and the HTTP status of each. */
const STATUS = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  MethodNotAllowed: 405,
  RequestTimeout: 408,
  PayloadTooLarge: 413,
  TooManyRequests: 429,
  HeaderFieldsTooLarge: 431,
  InternalServer: 500,
  BadGateway: 502,
  ServiceUnavailable: 503,
  GatewayTimeout: 504,
} as const

export type ErrorCode = keyof typeof STATUS

export type Headers = Readonly<Record<string, string | readonly string[]>>

export interface ErrorDetails {
  /** What happened, for the log; never shown to the caller. */
  readonly cause?: unknown
  /** Headers the answer must carry, such as `Allow` or `WWW-Authenticate`. */
  readonly headers?: Headers
  /** The RFC 6749 or RFC 6750 `error` value, where the code alone does not give it. */
  readonly oauthError?: string
}

/** One refusal or failure. Refusals are returned as values; only failures are thrown. */
export class GatewayError extends Error {
  readonly code: ErrorCode
  readonly status: number
  readonly headers: Headers
  readonly oauthError: string | undefined

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, { cause: details.cause })
    this.name = 'GatewayError'
    this.code = code
    this.status = STATUS[code]
    this.headers = details.headers ?? {}
    this.oauthError = details.oauthError
  }
}

/** 400: the request cannot be understood, or could be understood in two ways. */
export function badRequest(message: string, details?: ErrorDetails): GatewayError {
  return new GatewayError('BadRequest', message, details)
}

/** 400 that ends the socket: where this request ends, another server may see the next one begin (RFC 9112 section 6.3). */
export function unframed(message: string): GatewayError {
  return badRequest(message, { headers: { Connection: 'close' } })
}

/** 404: no route takes the path. */
export function notFound(): GatewayError {
  return new GatewayError('NotFound', 'Nothing is served at this path.')
}

/** 405 with `Allow` (RFC 9110 section 15.5.6): the path is served, but by these methods alone. */
export function methodNotAllowed(methods: readonly string[]): GatewayError {
  const allow = methods.join(', ')
  return new GatewayError('MethodNotAllowed', `This path takes ${allow}.`, { headers: { Allow: allow } })
}

/** 503 with `Retry-After`: something that the gateway needs to decide is out of reach for now. */
export function serviceUnavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('ServiceUnavailable', message, { cause, headers: { 'Retry-After': '1' } })
}
