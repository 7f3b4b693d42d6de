import { actionOf, answerFieldOf, INSPECTED, plainName } from './header-policy.ts'

/** What the gateway itself reports to the upstream of the connection and the request. */
export interface Connection {
  readonly peer: string
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
 * Returns the request's fields as the upstream gets them, but for Content-Length: a flat list of names, in lower case, and values.
 * `identity` are fields of the upstream's own in which a proxy reports who calls: the name as servers compare it → as configured,
 * in lower case.
 */
export function requestHeaders(
  fields: Readonly<Record<string, string | string[] | undefined>>,
  connection: Connection,
  identity: ReadonlyMap<string, string>,
): string[] {
  const { trusted, peer } = connection
  const out: string[] = []
  const named = namedByConnection(fields['connection'] as string | undefined)
  for (const name in fields) {
    const own = identity.size === 0 ? undefined : identity.get(plainName(name))
    const action = own === undefined ? actionOf(name) : own === name ? 'from-proxy' : 'drop'
    if (action === 'drop' || (action === 'from-proxy' && !trusted)) continue
    // What a trusted proxy reports is not the caller's to name away.
    if (action === 'keep' && named?.has(name) === true && !INSPECTED.has(name)) continue
    if (name === 'x-request-id' || name === 'x-forwarded-for' || name === 'content-length') continue
    const value = fields[name]
    if (typeof value === 'string') out.push(name, value)
    else for (const one of value ?? []) out.push(name, one)
  }
  const chain = trusted ? fields['x-forwarded-for'] : undefined
  out.push('x-forwarded-for', chain === undefined ? peer : `${String(chain)}, ${peer}`)
  const isMissing = (name: string): boolean => !trusted || fields[name] === undefined
  if (isMissing('x-forwarded-proto')) {
    // The port here does not belong to the scheme that a proxy reports.
    if (isMissing('x-forwarded-port')) out.push('x-forwarded-port', connection.port)
    out.push('x-forwarded-proto', connection.proto)
  }
  if (isMissing('x-forwarded-host')) out.push('x-forwarded-host', connection.host)
  if (isMissing('x-real-ip')) out.push('x-real-ip', peer)
  if (!trusted && connection.clientCert !== undefined) out.push('client-cert', connection.clientCert)
  out.push('x-request-id', connection.requestId)
  return out
}

/**
 * Reads the head of an answer. `headers` and `framing` (those that Node.js must know) are flat lists of fields in the order sent;
 * `rateLimit` replaces the upstream's own, `requestId` is added where it sent none. `keepAliveMs` is how long the upstream announces
 * that it keeps the socket, less the time for the next request to arrive.
 */
export function readAnswerHead(
  rawHeaders: readonly string[],
  status: number,
  rateLimit: readonly string[] | undefined,
  requestId: string,
) {
  let headers: string[] = []
  let framing: string[] = []
  let connection: string | undefined
  let contentLength: number | undefined
  let transferEncoding: string | undefined
  let keepAliveMs: number | undefined
  let hasId = false
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const value = rawHeaders[i + 1]!
    const field = answerFieldOf(name)
    if (field === 'keep') headers.push(name, value)
    else if (field === 'rate-limit') {
      if (rateLimit === undefined) headers.push(name, value)
    } else if (field === 'content-length') {
      contentLength = Number(value)
      // RFC 9110 section 8.6: no Content-Length in a 204.
      if (status !== 204) framing.push(name, value)
    } else if (field === 'date') framing.push(name, value)
    else if (field === 'x-request-id') {
      // The first of several; an empty one is none.
      if (hasId || value === '') continue
      hasId = true
      headers.push(name, value)
    } else if (field === 'connection')
      connection = connection === undefined ? value : `${connection},${value}`
    else if (field === 'keep-alive') keepAliveMs = announcedBy(value)
    else if (field === 'transfer-encoding') {
      transferEncoding = transferEncoding === undefined ? value : `${transferEncoding}, ${value}`
    }
  }
  const named = namedByConnection(connection)
  if (named !== undefined) {
    const isKept = (name: string): boolean => !named.has(name) || INSPECTED.has(name)
    const keep = (fields: string[]) => fields.filter((_, i) => isKept(fields[i - (i % 2)]!.toLowerCase()))
    headers = keep(headers)
    framing = keep(framing)
  }
  if (rateLimit !== undefined) headers.push(...rateLimit)
  if (!hasId) headers.push('X-Request-Id', requestId)
  return { headers, framing, contentLength, transferEncoding, keepAliveMs }
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
