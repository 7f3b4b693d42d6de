import type { IncomingMessage } from 'node:http'
import type { BodyLength } from '../downstream/framing.ts'
import { certificateField } from '../downstream/client-certificate.ts'
import { CHECKED, type RequestFields } from '../downstream/request-fields.ts'
import type { ResponseFields } from './response-fields.ts'

/** A request as it is sent to an upstream. */
export interface Outgoing {
  readonly target: string
  /** The fields as the upstream gets them, without those that frame the body, as text for `completeHead`. */
  readonly headers: string
  readonly bodyLength: BodyLength
  /** The whole body, if it was read before; else it is streamed. */
  readonly body?: Buffer | undefined
  /** Maximum bytes of a body of unknown length. */
  readonly maxBody: number
  readonly timeoutMs: number | undefined
  /** The gateway's rate-limit fields, on a limited route. */
  readonly rateLimit: string | undefined
  /** The request id of a response that has none. */
  readonly requestId: string
  readonly responseFields: ResponseFields
  /** Key of the caller, by which sockets and queue slots are rationed. */
  readonly caller: string
}

/** A received request, and the facts about it that the gateway reports to the upstream. */
export interface Received {
  readonly request: Pick<IncomingMessage, 'headers' | 'socket'>
  readonly peer: string
  /** The caller's address, as trusted proxies report it. */
  readonly ip: string
  readonly requestId: string
  /** True if the peer is a trusted proxy: its `Forwarded` and `X-Forwarded-*` are forwarded. */
  readonly trusted: boolean
}

/**
 * Returns the request's fields as the upstream gets them, without those that frame the body, as
 * text for `completeHead`: Node.js has parsed them, so they are well formed. `idField` is that of
 * the request id.
 */
export function requestHeaders(
  fields: Readonly<Record<string, string | string[] | undefined>>,
  { request, peer, ip, requestId, trusted }: Received,
  { actionOf }: Pick<RequestFields, 'actionOf'>,
  idField: string,
): string {
  const { socket } = request
  let headers = ''
  const named = namedByConnection(String(fields['connection'] ?? ''))
  for (const name in fields) {
    const action = actionOf(name)
    if (action === 'drop' || (action === 'from-proxy' && !trusted)) continue
    // A caller's `Connection` field cannot remove what a trusted proxy reports.
    if (action === 'keep' && named?.has(name) === true) continue
    const value = fields[name]
    if (typeof value === 'string') headers += `\r\n${name}: ${value}`
    else for (const one of value ?? []) headers += `\r\n${name}: ${one}`
  }
  const chain = trusted ? fields['x-forwarded-for'] : undefined
  headers += `\r\nx-forwarded-for: ${chain === undefined ? '' : `${String(chain)}, `}${peer}`
  const isMissing = (name: string): boolean => !trusted || fields[name] === undefined
  if (isMissing('x-forwarded-proto')) {
    // The gateway's port does not belong to the scheme that a proxy reports.
    if (isMissing('x-forwarded-port')) headers += `\r\nx-forwarded-port: ${socket.localPort ?? ''}`
    headers += `\r\nx-forwarded-proto: ${'encrypted' in socket ? 'https' : 'http'}`
  }
  if (isMissing('x-forwarded-host')) headers += `\r\nx-forwarded-host: ${request.headers.host!}`
  const certificate = trusted ? undefined : certificateField(socket)
  if (certificate !== undefined) headers += `\r\nclient-cert: ${certificate}`
  return `${headers}\r\nx-real-ip: ${ip}\r\n${idField}: ${requestId}`
}

/** What a response gets from the gateway. */
type Added = Pick<Outgoing, 'rateLimit' | 'requestId' | 'responseFields'>

/**
 * Reads the head of a response. `headers` are its fields in the order received, as text for
 * `appendFields`; `framing` are those that Node.js must parse, as a flat list. `rateLimit` replaces
 * the upstream's rate-limit fields, except those of a 429 of its own: the gateway's would report
 * calls as remaining. The request id is added if the upstream sent none. `keepAliveMs` is the
 * announced lifetime of an idle socket, less the time for the next request to arrive.
 */
export function readResponseHead(rawHeaders: readonly string[], status: number, added: Added) {
  const { requestId, responseFields } = added
  const { kindOf } = responseFields
  const hasOwnLimit =
    status === 429 && rawHeaders.some((name, i) => i % 2 === 0 && kindOf(name) === 'rate-limit')
  const rateLimit = hasOwnLimit ? undefined : added.rateLimit
  let connection = ''
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]!.length === 10 && rawHeaders[i]!.toLowerCase() === 'connection')
      connection += `,${rawHeaders[i + 1]!}`
  const named = namedByConnection(connection.slice(1))
  let headers = ''
  const framing: string[] = []
  let contentLength: number | undefined
  let transferEncoding: string | undefined
  let keepAliveMs: number | undefined
  let hasId = false
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const value = rawHeaders[i + 1]!
    const field = kindOf(name)
    if (field === 'keep' || field === 'rate-limit' || field === 'date') {
      if (field === 'rate-limit' && rateLimit !== undefined) continue
      if (named?.has(name.toLowerCase()) === true) continue
      if (field === 'date') framing.push(name, value)
      else headers += `\r\n${name}: ${value}`
    } else if (field === 'content-length') {
      contentLength = Number(value)
      // RFC 9110 section 8.6: no Content-Length in a 204.
      if (status !== 204) framing.push(name, value)
    } else if (field === 'request-id') {
      // The first that is not empty.
      if (hasId || value === '') continue
      hasId = true
      headers += `\r\n${name}: ${value}`
    } else if (field === 'keep-alive') keepAliveMs = announcedBy(value)
    else if (field === 'transfer-encoding') {
      transferEncoding = transferEncoding === undefined ? value : `${transferEncoding}, ${value}`
    }
  }
  if (rateLimit !== undefined) headers += rateLimit
  if (!hasId) headers += `\r\n${responseFields.requestId}: ${requestId}`
  return { headers, framing, contentLength, transferEncoding, keepAliveMs }
}

export type ResponseHead = ReturnType<typeof readResponseHead>

/** Parses `Keep-Alive: timeout=5` (RFC 2068 section 19.7.1.1), which is in seconds. */
function announcedBy(keepAlive: string): number | undefined {
  const seconds = /timeout=(\d+)/.exec(keepAlive)?.[1]
  if (seconds === undefined) return undefined
  const ms = Number(seconds) * 1000
  return Math.max(ms - 1000, ms / 2)
}

/**
 * Returns the fields that `Connection` removes (RFC 9110 section 7.6.1); undefined for the usual
 * options, `keep-alive` and `close`.
 */
function namedByConnection(connection: string): ReadonlySet<string> | undefined {
  const lower = connection.toLowerCase()
  if (lower === '' || lower === 'keep-alive' || lower === 'close') return undefined
  const options = lower.split(',').map((option) => option.trim())
  return new Set(options.filter((option) => !CHECKED.has(option)))
}
