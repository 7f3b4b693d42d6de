import { BlockList, isIP } from 'node:net'
import { z } from 'zod'
import { parseHost } from '../target.ts'
import { textThat } from './values.ts'
import { mustSecretly } from './wording.ts'

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

/** Where the issuer’s keys are: an http or https URL, or a path. */
export function keysLocation() {
  return textThat(
    (text) => text !== '' && (!/^\w+:/.test(text) || isKeysUrl(text)),
    'an http or https URL, or the path of a file',
    (text) =>
      text.startsWith('file:')
        ? `is a path already; write ${text.replace(/^file:(?:\/\/)?/, '')}`
        : undefined,
  )
}

function isKeysUrl(text: string): boolean {
  const url = httpUrl(text)
  return url !== undefined && url.username === '' && url.password === ''
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

/** A node of a Redis Cluster, which has database 0 alone. */
export function clusterUrl() {
  const what = 'redis://host:6379 or rediss://host:6379'
  const wording = mustSecretly(what, (input) =>
    typeof input === 'string' ? nodeProblem(input, what) : undefined,
  )
  return z.string(wording).refine((text) => nodeProblem(text, what) === undefined, wording)
}

/** A sentinel, without credentials: its own are another setting, and so are those of the master. */
export function sentinelUrl() {
  const what = 'redis://host:26379 or rediss://host:26379'
  const problem = (text: string) =>
    nodeProblem(text, what) ??
    (/@/.test(text)
      ? 'must hold no credentials; write them as username, password and sentinelPassword'
      : undefined)
  const wording = mustSecretly(what, (input) => (typeof input === 'string' ? problem(input) : undefined))
  return z.string(wording).refine((text) => problem(text) === undefined, wording)
}

function nodeProblem(text: string, what: string): string | undefined {
  if (!/^rediss?:\/\//.test(text)) return `must be ${what}`
  const isLonger = URL.canParse(text) && new URL(text).pathname.length > 1
  return isLonger ? `must end after the port; write ${what}` : redisProblem(text)
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
