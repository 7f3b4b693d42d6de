/**
 * The rate-limit fields that the gateway sets: on limited routes they replace those of the upstream,
 * no file may set them, and pages of other origins may read them.
 */
const RATE_LIMIT_FIELDS = [
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'RateLimit',
  'RateLimit-Policy',
] as const
/** Fields of earlier drafts of `RateLimit`, which would contradict the gateway's. */
const OF_OLD_DRAFTS = ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'] as const

/** The gateway's own fields that browsers hide from pages of other origins, besides that of the request id. */
export const HIDDEN_FIELDS: readonly string[] = [...RATE_LIMIT_FIELDS, 'Retry-After', 'WWW-Authenticate']

const REPLACED: ReadonlySet<string> = new Set(
  [...RATE_LIMIT_FIELDS, ...OF_OLD_DRAFTS].map((name) => name.toLowerCase()),
)
/** Matches the names that are kept for rate-limit fields, also for future ones. */
const RESERVED = /^(?:x-)?ratelimit(?:-|$)/
const SET = new Set(['retry-after', 'cache-control', 'content-length', 'date'])

/** True for a lower-case field that the gateway's rate-limit fields replace in responses of upstreams. */
export const isRateLimitField = (name: string): boolean => REPLACED.has(name)

/** True for a lower-case field that only the gateway sets in its own responses. */
export const isSetByGateway = (name: string): boolean => RESERVED.test(name) || SET.has(name)
