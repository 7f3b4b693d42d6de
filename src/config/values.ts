import { BlockList, isIP } from 'node:net'
import { z } from 'zod'
import { parseHost } from '../target.ts'
import { must, mustHave, mustSecretly, oneOf } from './wording.ts'
import { nearest } from './nearest.ts'

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/
const UNIT_BYTES = { B: 1, kB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 } as const
const SIZE = /^(\d+(?:\.\d+)?)(B|kB|MB|GB)$/

/** The milliseconds of a duration such as `30s`; NaN of anything else. */
export function durationMs(text: string): number {
  const [, count, unit] = DURATION.exec(text) ?? []
  return count === undefined ? Number.NaN : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]
}

/** The bytes of a size such as `16kB`; NaN of anything else. */
export function sizeBytes(text: string): number {
  const [, count, unit] = SIZE.exec(text) ?? []
  return count === undefined ? Number.NaN : Number(count) * UNIT_BYTES[unit as keyof typeof UNIT_BYTES]
}

/** A duration with its unit → milliseconds. */
export function duration(least: string, most: string) {
  return measure(durationMs, DURATION, `a duration from ${least} to ${most}`, 's', [least, most])
}

/** A size with its unit → bytes. */
export function size(least: string, most: string) {
  return measure(sizeBytes, SIZE, `a size from ${least} to ${most}`, 'kB', [least, most])
}

function measure(
  read: (text: string) => number,
  pattern: RegExp,
  what: string,
  unit: string,
  [least, most]: readonly [string, string],
) {
  const wording = must(what, (input) => {
    if (typeof input === 'number') return `has no unit; write ${input}${unit} if that is meant`
    if (typeof input !== 'string' || Number.isNaN(read(input))) return undefined
    return Number.isInteger(read(input))
      ? undefined
      : `must come to whole ${unit === 's' ? 'milliseconds' : 'bytes'}`
  })
  return z
    .string(wording)
    .regex(pattern, { ...wording, abort: true })
    .refine((text) => {
      const value = read(text)
      return Number.isInteger(value) && value >= read(least) && value <= read(most)
    }, wording)
    .transform(read)
}

/** A whole number. */
export function whole(least: number, most: number, what = `a whole number from ${least} to ${most}`) {
  const wording = must(what)
  return z
    .number(wording)
    .int({ ...wording, abort: true })
    .min(least, wording)
    .max(most, wording)
}

/** 0 lets the system choose a free port. */
export function port() {
  return whole(0, 65_535, 'a port from 0 to 65535')
}

/** One of a few words. */
export function choice<const T extends readonly [string, ...string[]]>(words: T) {
  return z.enum(
    words,
    must(oneOf(words), (input) => {
      const meant = typeof input === 'string' ? nearest(input, words) : undefined
      return meant === undefined ? undefined : `must be ${oneOf(words)}; did you mean "${meant}"?`
    }),
  )
}

/** A text that is not empty. */
export function text(what: string) {
  const wording = must(what)
  return z.string(wording).min(1, wording)
}

/** A text that `sound` accepts. */
export function textThat(
  sound: (text: string) => boolean,
  what: string,
  explain?: (text: string) => string | undefined,
) {
  const wording = must(what, (input) => (typeof input === 'string' ? explain?.(input) : undefined))
  return z.string(wording).refine(sound, wording)
}

/** A list without duplicates. */
export function list<T extends z.ZodType>(item: T, least: number, what: string) {
  const wording = must(what, (input) =>
    Array.isArray(input) ? 'must not be empty' : `must be ${what}, in [ ] or with a "- " before each`,
  )
  return z.array(item, wording).min(least, wording)
}

/** A mapping with the keys of `shape` and no other. */
export function section<T extends z.core.$ZodLooseShape>(shape: T, what = 'a mapping') {
  return z.strictObject(shape, mustHave(Object.keys(shape), what))
}

/** The names that operators give to upstreams and limits. */
export function name() {
  return z.string().regex(/^[a-z][a-z0-9_-]*$/, {
    error: 'is no name; write lower-case letters, digits, "-" and "_", a letter first',
  })
}

/** The address or name that a listener binds. */
export function bindHost() {
  return textThat(
    (host) => isIP(host) !== 0 || /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host),
    'an address or a host name without port, such as 127.0.0.1',
  )
}

/** A host that the gateway serves, in lower case. */
export function servedHost() {
  return textThat((host) => {
    const parsed = parseHost(host)
    return parsed !== undefined && parsed.port === '' && !host.endsWith(':')
  }, 'a host name without port, such as api.example.com').transform((host) => parseHost(host)!.host)
}

/** A range of addresses, such as `10.0.0.0/8`. */
export function cidr() {
  return textThat(isCidr, 'a range of addresses such as 10.0.0.0/8', (range) =>
    isIP(range) === 0
      ? undefined
      : `must be a range of addresses; write ${range}/${isIP(range) === 4 ? 32 : 128} for this one alone`,
  )
}

function isCidr(range: string): boolean {
  const [address = '', bits = '', ...more] = range.split('/')
  if (more.length > 0 || isIP(address) === 0 || !/^\d{1,3}$/.test(bits) || address.includes('%')) return false
  try {
    new BlockList().addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6')
    return true
  } catch {
    return false
  }
}

/** The address of an http or https server, without anything after the port → its origin. */
export function origin() {
  const what = 'an address such as http://data.internal:4000'
  return textThat(
    (url) => originProblem(url) === undefined,
    what,
    (url) => originProblem(url),
  ).transform((url) => new URL(url).origin)
}

function originProblem(text: string): string | undefined {
  const url = httpUrl(text)
  if (url === undefined) return 'must be an http or https address, such as http://data.internal:4000'
  if (url.username !== '' || url.password !== '')
    return 'must hold no credentials; upstreams are asked without any'
  if (url.search !== '' || url.hash !== '') return `must end after the port; write ${url.origin}`
  if (url.pathname !== '/') return `must have no path, because requests keep theirs; write ${url.origin}`
  return undefined
}

/** An http or https URL exactly as written, because it is compared so (RFC 8414 section 2: no query, no fragment). */
export function issuer() {
  return textThat((text) => {
    const url = httpUrl(text)
    return url !== undefined && !/[?#\s]/.test(text) && url.username === '' && url.password === ''
  }, 'the issuer’s URL without query or fragment, such as https://identity.example.com/oidc')
}

/** The URL, where it is one of http or https. */
export function httpUrl(text: string): URL | undefined {
  const url = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : undefined
  return url === undefined || url.port === '0' ? undefined : url
}

/** Where Redis listens: `redis://`, `rediss://` or a socket file. */
export function redisUrl() {
  const wording = mustSecretly(
    'redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock',
    (input) => (typeof input === 'string' ? redisProblem(input) : undefined),
  )
  return z.string(wording).refine((text) => redisProblem(text) === undefined, wording)
}

function redisProblem(text: string): string | undefined {
  if (/^(?:unix:\/\/)?\/[^\s?#]+$/.test(text)) return undefined
  if (!/^rediss?:\/\//.test(text) || !URL.canParse(text)) {
    return 'must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'
  }
  const url = new URL(text)
  if (url.hostname === '') return 'names no host; write redis://host:6379'
  if (url.search !== '' || url.hash !== '') return 'must have nothing after the database number'
  if (!/^(?:\/\d{0,4})?$/.test(url.pathname))
    return 'must end with the number of a database, such as /0, or without'
  return undefined
}
