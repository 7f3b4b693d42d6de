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

/** A configured response that replaces the usual one to a refused request. */
export interface FixedReply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  /** Media type of `body`, unless `headers` has it. */
  readonly contentType?: string
}

/**
 * A reason not to serve a request: a plain value without a stack. `message` is for the caller,
 * `cause` for the log.
 */
export class Refusal {
  readonly code: ErrorCode
  readonly status: number
  readonly message: string
  /** Replaces the message in the log, which must not quote what the caller sent. */
  readonly logged: string | undefined
  /** Header fields of the reply, such as `Allow` or `WWW-Authenticate`. */
  readonly headers: Readonly<Record<string, string | string[]>>
  /** The RFC 6749 or RFC 6750 `error` value, if the code does not imply it. */
  readonly oauthError: string | undefined
  /** Whole seconds after which to retry. */
  readonly retryAfterSecs: number | undefined
  /** The names of all limits that refused, in the route's order; undefined for `failures`. */
  readonly violatedPolicies: readonly string[] | undefined
  readonly reply: FixedReply | undefined
  /** The underlying error; never shown to the caller. */
  readonly cause: unknown
  /** The client with verified credentials that is refused, for the log. */
  readonly client: string | undefined
  /** The cache of `downstream/reply.ts`: the replies to a flood share it. */
  problem: RenderedProblem | undefined = undefined

  constructor(code: ErrorCode, message: string, details: RefusalDetails = {}) {
    this.code = code
    this.status = details.reply?.status ?? STATUS[code]
    this.message = message
    this.logged = details.logged
    this.headers = details.headers ?? {}
    this.oauthError = details.oauthError
    this.retryAfterSecs = details.retryAfterSecs
    this.violatedPolicies = details.violatedPolicies
    this.reply = details.reply
    this.cause = details.cause
    this.client = details.client
  }
}

export type RefusalDetails = Partial<Omit<Refusal, 'code' | 'status' | 'message' | 'problem'>>

/** The body of a problem up to the request id, for the documentation that its type leads to. */
interface RenderedProblem {
  readonly docs: string | undefined
  readonly start: string
}

/** A refusal that is thrown, or that ends a response in flight. */
export class Failure extends Error {
  override readonly name = 'Failure'
  readonly refusal: Refusal

  constructor(refusal: Refusal) {
    super(refusal.message, { cause: refusal.cause })
    this.refusal = refusal
  }
}

export const badRequest = (message: string, details?: RefusalDetails): Refusal =>
  new Refusal('BadRequest', message, details)

/**
 * Returns a 400 or 501 that closes the connection, so that leftover bytes are not parsed as a
 * request (RFC 9112 section 6.3).
 */
export const ambiguousFraming = (message: string, code: ErrorCode = 'BadRequest'): Refusal =>
  new Refusal(code, message, { headers: { Connection: 'close' } })

export const notFound = (): Refusal => new Refusal('NotFound', 'Nothing is served at this path.')

/**
 * Returns a 405 with `Allow` (RFC 9110 section 15.5.6) for a path that routes match only with these
 * methods.
 */
export function methodNotAllowed(methods: readonly string[]): Refusal {
  const allow = methods.join(', ')
  return new Refusal('MethodNotAllowed', `Use ${allow} here.`, { headers: { Allow: allow } })
}

/** Returns a 503 with `Retry-After`, for a dependency that is unavailable. */
export const serviceUnavailable = (message: string, cause?: unknown): Refusal =>
  new Refusal('ServiceUnavailable', message, { cause, headers: { 'Retry-After': '1' } })

/** Returns the 503 for what a team owns whose file has mistakes, and no valid version. */
export const teamUnavailable = (): Refusal =>
  serviceUnavailable('The configuration of this part of the API is invalid.')

/** An operator asked for something that does not exist; the message names the remedy. */
export class InvalidQuestion extends Error {
  override readonly name: string = 'InvalidQuestion'
}

/**
 * An operator asked for a caller that no limit counts, or that is not known by the short form of
 * its name.
 */
export class UncountedCaller extends InvalidQuestion {
  override readonly name = 'UncountedCaller'
}

/** An operator asked for a caller by a short form that several callers have. */
export class AmbiguousCaller extends InvalidQuestion {
  override readonly name = 'AmbiguousCaller'
}
