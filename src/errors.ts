/** Every way in which the gateway itself says no. */

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
  NotImplemented: 501,
  BadGateway: 502,
  ServiceUnavailable: 503,
  GatewayTimeout: 504,
} as const

export type ErrorCode = keyof typeof STATUS

export type Headers = Readonly<Record<string, string | readonly string[]>>

const NO_HEADERS: Headers = {}

export interface RefusalDetails {
  /** What happened, for the log; never shown to the caller. */
  readonly cause?: unknown
  /** Header fields of the reply, such as `Allow` or `WWW-Authenticate`. */
  readonly headers?: Headers
  /** The RFC 6749 or RFC 6750 `error` value, where the code alone does not give it. */
  readonly oauthError?: string
  /** Whose verified credentials are refused, for the log. */
  readonly client?: string | undefined
  /** Of a 429: when to retry, in whole seconds, and the names of the limits that refused; none for `failures`. */
  readonly retryAfterSecs?: number
  readonly violatedPolicies?: readonly string[]
}

/** Why a request is not served: a plain value, made without a stack. `message` is for the caller, `cause` for the log. */
export class Refusal {
  readonly code: ErrorCode
  readonly status: number
  readonly message: string
  readonly headers: Headers
  readonly oauthError: string | undefined
  readonly retryAfterSecs: number | undefined
  readonly violatedPolicies: readonly string[] | undefined
  readonly cause: unknown
  readonly client: string | undefined

  constructor(code: ErrorCode, message: string, details: RefusalDetails = {}) {
    this.code = code
    this.status = STATUS[code]
    this.message = message
    this.headers = details.headers ?? NO_HEADERS
    this.oauthError = details.oauthError
    this.retryAfterSecs = details.retryAfterSecs
    this.violatedPolicies = details.violatedPolicies
    this.cause = details.cause
    this.client = details.client
  }
}

/** A refusal that is thrown, or that ends a response in flight. */
export class Failure extends Error {
  readonly refusal: Refusal

  constructor(refusal: Refusal) {
    super(refusal.message, { cause: refusal.cause })
    this.name = 'Failure'
    this.refusal = refusal
  }
}

/** 400: the request cannot be parsed, or can be read in two ways. */
export function badRequest(message: string, details?: RefusalDetails): Refusal {
  return new Refusal('BadRequest', message, details)
}

/** 400, or 501, that closes the socket, so that leftover bytes are not parsed as a request (RFC 9112 section 6.3). */
export function ambiguousFraming(message: string, code: ErrorCode = 'BadRequest'): Refusal {
  return new Refusal(code, message, { headers: { Connection: 'close' } })
}

/** 404: no route matches the path. */
export function notFound(): Refusal {
  return new Refusal('NotFound', 'Nothing is served at this path.')
}

/** 405 with `Allow` (RFC 9110 section 15.5.6): a route matches the path, but only with these methods. */
export function methodNotAllowed(methods: readonly string[]): Refusal {
  const allow = methods.join(', ')
  return new Refusal('MethodNotAllowed', `This path takes ${allow}.`, { headers: { Allow: allow } })
}

/** 429: over a limit, whose decision adds the rate-limit fields; or too many failures of one address, with them in `headers`. */
export function tooManyRequests(message: string, details: RefusalDetails): Refusal {
  return new Refusal('TooManyRequests', message, details)
}

/** 503 with `Retry-After`: something that the gateway needs to decide is not available now. */
export function serviceUnavailable(message: string, cause?: unknown): Refusal {
  return new Refusal('ServiceUnavailable', message, { cause, headers: { 'Retry-After': '1' } })
}

/** An operator asks for something that there is not; the message says what to write instead. */
export class InvalidQuestion extends Error {
  override readonly name = 'InvalidQuestion'
}
