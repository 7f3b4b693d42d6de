import { actionOf, responseFieldOf, INSPECTED, normalizeFieldName } from './header-policy.ts'

/** What the gateway itself reports to the upstream of the connection and the request. */
export interface Connection {
  readonly peer: string
  /** The caller's address, as trusted proxies report it. */
  readonly ip: string
  readonly proto: 'http' | 'https'
  readonly host: string
  readonly port: string
  readonly requestId: string
  /** `Client-Cert`, if the peer showed a certificate that was verified. */
  readonly clientCert?: string | undefined
  /** True if the peer is a trusted proxy, whose `Forwarded` and `X-Forwarded-*` are believed. */
  readonly trusted: boolean
}

/**
 * Returns the request's fields as the upstream gets them, but for Content-Length, as text for `addFields`; names are in lower case.
 * `identity` are fields of the upstream's own in which a proxy reports who calls: the name as servers compare it → as configured,
 * in lower case.
 */
export function requestHeaders(
  fields: Readonly<Record<string, string | string[] | undefined>>,
  connection: Connection,
  identity: ReadonlyMap<string, string>,
): string {
  const { trusted, peer } = connection
  let out = ''
  const named = namedByConnection(fields['connection'] as string | undefined)
  for (const name in fields) {
    const own = identity.size === 0 ? undefined : identity.get(normalizeFieldName(name))
    const action = own === undefined ? actionOf(name) : own === name ? 'from-proxy' : 'drop'
    if (action === 'drop' || (action === 'from-proxy' && !trusted)) continue
    // What a trusted proxy reports is not the caller's to name away.
    if (action === 'keep' && named !== undefined && isNamed(name, named)) continue
    const value = fields[name]
    if (typeof value === 'string') out += `\r\n${name}: ${value}`
    else for (const one of value ?? []) out += `\r\n${name}: ${one}`
  }
  const chain = trusted ? fields['x-forwarded-for'] : undefined
  out += `\r\nx-forwarded-for: ${chain === undefined ? peer : `${String(chain)}, ${peer}`}`
  const isMissing = (name: string): boolean => !trusted || fields[name] === undefined
  if (isMissing('x-forwarded-proto')) {
    // The port here does not belong to the scheme that a proxy reports.
    if (isMissing('x-forwarded-port')) out += `\r\nx-forwarded-port: ${connection.port}`
    out += `\r\nx-forwarded-proto: ${connection.proto}`
  }
  if (isMissing('x-forwarded-host')) out += `\r\nx-forwarded-host: ${connection.host}`
  out += `\r\nx-real-ip: ${connection.ip}`
  if (!trusted && connection.clientCert !== undefined) out += `\r\nclient-cert: ${connection.clientCert}`
  return `${out}\r\nx-request-id: ${connection.requestId}`
}

/**
 * Reads the head of an answer. `headers` are its fields in the order sent, as text for `addFields`; `framing` are those that Node.js
 * must know, as a flat list. `gatewayLimit` replaces the upstream's own rate-limit fields, `requestId` is added where it sent none. `keepAliveMs` is how
 * long the upstream announces that it keeps the socket, less the time for the next request to arrive. An upstream's own 429 keeps
 * its rate-limit fields: the gateway's would tell the caller of calls that are left.
 */
export function readResponseHead(
  rawHeaders: readonly string[],
  status: number,
  gatewayLimit: string | undefined,
  requestId: string,
) {
  const rateLimit = status === 429 && rawHeaders.some(isRateLimit) ? undefined : gatewayLimit
  const named = namedByConnection(connectionOf(rawHeaders))
  let headers = ''
  const framing: string[] = []
  let contentLength: number | undefined
  let transferEncoding: string | undefined
  let keepAliveMs: number | undefined
  let hasId = false
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const value = rawHeaders[i + 1]!
    const field = responseFieldOf(name)
    if (field === 'keep' || field === 'rate-limit' || field === 'date') {
      if (field === 'rate-limit' && rateLimit !== undefined) continue
      if (named !== undefined && isNamed(name.toLowerCase(), named)) continue
      if (field === 'date') framing.push(name, value)
      else headers += `\r\n${name}: ${value}`
    } else if (field === 'content-length') {
      contentLength = Number(value)
      // RFC 9110 section 8.6: no Content-Length in a 204.
      if (status !== 204) framing.push(name, value)
    } else if (field === 'x-request-id') {
      // The first of several; an empty one is none.
      if (hasId || value === '') continue
      hasId = true
      headers += `\r\n${name}: ${value}`
    } else if (field === 'keep-alive') keepAliveMs = announcedBy(value)
    else if (field === 'transfer-encoding') {
      transferEncoding = transferEncoding === undefined ? value : `${transferEncoding}, ${value}`
    }
  }
  if (rateLimit !== undefined) headers += rateLimit
  if (!hasId) headers += `\r\nX-Request-Id: ${requestId}`
  return { headers, framing, contentLength, transferEncoding, keepAliveMs }
}

/** True for the name of a rate-limit field, at an even index of a list of names and values. */
const isRateLimit = (name: string, i: number): boolean =>
  i % 2 === 0 && responseFieldOf(name) === 'rate-limit'

function connectionOf(rawHeaders: readonly string[]): string | undefined {
  let connection: string | undefined
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const [name, value] = [rawHeaders[i]!, rawHeaders[i + 1]!]
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue
    connection = connection === undefined ? value : `${connection},${value}`
  }
  return connection
}

/** Parses `Keep-Alive: timeout=5` (RFC 2068 section 19.7.1.1), which is in seconds. */
function announcedBy(keepAlive: string): number | undefined {
  const seconds = /timeout=(\d+)/.exec(keepAlive)?.[1]
  if (seconds === undefined) return undefined
  const ms = Number(seconds) * 1000
  return Math.max(ms - 1000, ms / 2)
}

/** Returns the fields that a `Connection` header names; undefined for the everyday options, which name none. */
function namedByConnection(connection: string | undefined): ReadonlySet<string> | undefined {
  if (connection === undefined) return undefined
  const lower = connection.toLowerCase()
  if (lower === 'keep-alive' || lower === 'close') return undefined
  return new Set(lower.split(',').map((option) => option.trim()))
}

/** True if a field, in lower case, ends here because `Connection` names it. */
function isNamed(name: string, named: ReadonlySet<string>): boolean {
  return named.has(name) && !INSPECTED.has(name)
}
