import { type Refusal, unframed } from '../errors.ts'
import { fateOf, HOP_BY_HOP, JUDGED, plainName } from '../upstream/header-policy.ts'

const RATE_LIMIT: ReadonlySet<string> = new Set([
  'ratelimit',
  'ratelimit-limit',
  'ratelimit-policy',
  'ratelimit-remaining',
  'ratelimit-reset',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
])

/** The fields whose number matters, as they stand in the raw head. */
export interface Head {
  readonly hosts: readonly string[]
  readonly authorization: readonly string[]
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
}

/** Collects every `Host`, `Authorization` and `DPoP` value, since Node keeps only the first of each or joins them. */
export function readHead(rawHeaders: readonly string[]): Head {
  const hosts: string[] = []
  const authorization: string[] = []
  const proofs: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (lower === 'host') hosts.push(rawHeaders[i + 1]!)
    else if (lower === 'authorization') authorization.push(rawHeaders[i + 1]!)
    else if (lower === 'dpop') proofs.push(rawHeaders[i + 1]!)
  }
  return { hosts, authorization, proofs }
}

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>

/** How many bytes of body a request announces: 0 for none, undefined for a chunked body of unknown length. */
export type BodyLength = number | undefined

const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])

/** Reads the announced body, or refuses a framing that two servers could read differently (RFC 9112 section 6). */
export function bodyLength(
  method: string,
  httpVersion: string,
  headers: RequestHeaders,
): BodyLength | Refusal {
  if (httpVersion !== '1.1' && httpVersion !== '1.0')
    return unframed('This is neither HTTP/1.1 nor HTTP/1.0.')
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (coding === undefined && length === undefined) return 0
  if (coding !== undefined) {
    if (length !== undefined) return unframed('Send Content-Length or Transfer-Encoding, not both.')
    if (BODILESS.has(method)) return unframed(`A ${method} request carries no body here.`)
    if (httpVersion !== '1.1') return unframed('Transfer-Encoding needs HTTP/1.1.')
    if (String(coding).toLowerCase() !== 'chunked')
      return unframed('The only Transfer-Encoding taken is "chunked".')
    return undefined
  }
  if (!/^(?:0|[1-9]\d{0,14})$/.test(String(length))) return unframed('The Content-Length is no plain number.')
  const bytes = Number(length)
  if (bytes > 0 && BODILESS.has(method)) return unframed(`A ${method} request carries no body here.`)
  return bytes
}

/** What the gateway itself tells the upstream of the connection and the request. */
export interface Forwarded {
  /** The address of the socket's peer. */
  readonly peer: string
  readonly proto: 'http' | 'https'
  readonly host: string
  readonly port: string
  readonly requestId: string
  /** `Client-Cert`, where the peer showed a certificate that is to be believed. */
  readonly clientCert?: string | undefined
  /** May the peer speak for others in `Forwarded` and `X-Forwarded-*`? */
  readonly trusted: boolean
}

/** Fields of an upstream's own in which a proxy tells it who calls: the name as servers compare it → as it is configured, in lower case. */
export type IdentityHeaders = ReadonlyMap<string, string>

/** Reads the names of such fields. */
export function identityHeadersOf(names: readonly string[]): IdentityHeaders {
  return new Map(names.map((name) => [plainName(name.toLowerCase()), name.toLowerCase()]))
}

const NO_IDENTITY: IdentityHeaders = new Map()

/** The request's fields as the upstream gets them. */
export function requestHeaders(
  headers: RequestHeaders,
  forwarded: Forwarded,
  identity = NO_IDENTITY,
): Record<string, string | string[]> {
  const out: Record<string, string | string[]> = {}
  const named = namedByConnection(headers['connection'])
  for (const name in headers) {
    const own = identity.size === 0 ? undefined : identity.get(plainName(name))
    const fate = own === undefined ? fateOf(name) : own === name ? 'from-proxy' : 'drop'
    if (fate === 'drop' || (fate === 'from-proxy' && !forwarded.trusted)) continue
    // What a trusted proxy says is not the caller's to name away.
    if (fate === 'keep' && named?.has(name) === true && !JUDGED.has(name)) continue
    const value = headers[name]
    if (value !== undefined) out[name] = value
  }
  if (forwarded.trusted) {
    const chain = out['x-forwarded-for']
    out['x-forwarded-for'] = chain === undefined ? forwarded.peer : `${String(chain)}, ${forwarded.peer}`
    // The port here is not that of a scheme that the proxy was asked by.
    if (out['x-forwarded-proto'] === undefined) out['x-forwarded-port'] ??= forwarded.port
    out['x-forwarded-proto'] ??= forwarded.proto
    out['x-forwarded-host'] ??= forwarded.host
    out['x-real-ip'] ??= forwarded.peer
  } else {
    out['x-forwarded-for'] = forwarded.peer
    out['x-forwarded-proto'] = forwarded.proto
    out['x-forwarded-host'] = forwarded.host
    out['x-forwarded-port'] = forwarded.port
    out['x-real-ip'] = forwarded.peer
    if (forwarded.clientCert !== undefined) out['client-cert'] = forwarded.clientCert
  }
  out['x-request-id'] = forwarded.requestId
  return out
}

/**
 * The upstream's fields as the caller gets them: names and values as sent, in their order, as Node's flat list.
 * With `rateLimit`, the gateway's own rate-limit fields stand in place of any that the upstream sent.
 */
export function responseHeaders(
  rawHeaders: readonly string[],
  connection: string | undefined,
  status: number,
  rateLimit: readonly string[] | undefined,
): string[] {
  const out: string[] = []
  const named = namedByConnection(connection)
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const lower = name.toLowerCase()
    if (HOP_BY_HOP.has(lower)) continue
    if (named?.has(lower) === true && !JUDGED.has(lower)) continue
    if (rateLimit !== undefined && RATE_LIMIT.has(lower)) continue
    // RFC 9110 section 8.6: no Content-Length in a 204.
    if (status === 204 && lower === 'content-length') continue
    out.push(name, rawHeaders[i + 1]!)
  }
  if (rateLimit !== undefined) out.push(...rateLimit)
  return out
}

/** The fields that a `Connection` header names, beside the everyday options that name none. */
function namedByConnection(connection: string | string[] | undefined): ReadonlySet<string> | undefined {
  if (connection === undefined) return undefined
  const lower = String(connection).toLowerCase()
  if (lower === 'keep-alive' || lower === 'close') return undefined
  return new Set(lower.split(',').map((option) => option.trim()))
}
