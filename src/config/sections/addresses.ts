import { BlockList, isIP } from 'node:net'
import { parseHost } from '../../downstream/target.ts'
import { textThat } from './values.ts'

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

/** The name in a server’s certificate; an address cannot be asked for (RFC 6066 section 3). */
export function tlsName() {
  return textThat(
    (host) => isIP(host) === 0 && /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host),
    'a host name such as data.internal',
  )
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
    (text) => text !== '' && (!/^\w+:/.test(text) || isFetched(text)),
    'an http or https URL, or the path of a file',
    plainPath,
  )
}

/** An http or https URL without credentials, which is fetched as written. */
export function fetchedUrl(what: string) {
  return textThat(isFetched, what, (text) =>
    httpUrl(text) === undefined || isFetched(text) ? undefined : 'must hold no credentials and no fragment',
  )
}

function isFetched(text: string): boolean {
  const url = httpUrl(text)
  return url !== undefined && url.username === '' && url.password === '' && !text.includes('#')
}

/** The path of a PEM file, relative to the configuration. */
export function pemFile() {
  return textThat((path) => path !== '' && !path.startsWith('file:'), 'the path of a PEM file', plainPath)
}

function plainPath(text: string): string | undefined {
  return text.startsWith('file:')
    ? `is a path already; write ${text.replace(/^file:(?:\/\/)?/, '')}`
    : undefined
}

/** The URL, where it is one of http or https. */
export function httpUrl(text: string): URL | undefined {
  const url = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : undefined
  return url === undefined || url.port === '0' ? undefined : url
}
