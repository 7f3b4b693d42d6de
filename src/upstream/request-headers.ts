import type { IncomingMessage } from 'node:http'
import type { BodyLength } from '../downstream/framing.ts'
import { certificateField } from '../downstream/client-certificate.ts'
import { firstOf, type PublicUrl, publicPort } from '../downstream/public-url.ts'
import { namedByConnection, nameSet, type RequestFields } from '../downstream/request-fields.ts'
import type { AddedFields } from './response-head.ts'
import type { ResponseReader } from './response-reader.ts'

/** A request as it is sent to an upstream, and what its response gets. */
export interface Outgoing extends AddedFields {
  readonly target: string
  /** The fields as the upstream gets them, without those that frame the body, as text for `completeHead`. */
  readonly headers: string
  readonly bodyLength: BodyLength
  /** The whole body, if it was read before; else it is streamed. */
  readonly body?: Buffer | undefined
  /** Maximum bytes of a body of unknown length. */
  readonly maxBody: number
  readonly timeoutMs: number | undefined
  /** Key of the caller, by which sockets and queue slots are rationed. */
  readonly caller: string
  /** True if the request opens a WebSocket. */
  readonly isHandshake: boolean
  /** Reads the response; undefined if it is only streamed. */
  readonly reader: ResponseReader | undefined
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

/** Fields in which proxies report the URL that the caller used. */
const OF_PUBLIC_URL = nameSet('x-forwarded-host x-forwarded-port x-forwarded-prefix x-forwarded-proto')

function publicUrlFields({ scheme, host, port, prefix }: PublicUrl): string {
  const fields = `\r\nx-forwarded-proto: ${scheme}\r\nx-forwarded-host: ${host}\r\nx-forwarded-port: ${port}`
  return prefix === '' ? fields : `${fields}\r\nx-forwarded-prefix: ${prefix}`
}

/** Returns the parts of the caller's URL that a trusted proxy has not reported: by Host, and TLS of the socket. */
function seenUrlFields(
  fields: Readonly<Record<string, string | string[] | undefined>>,
  { headers, socket }: Received['request'],
  trusted: boolean,
): string {
  const reported = (name: string) => (trusted ? fields[name]?.toString() : undefined)
  const scheme = reported('x-forwarded-proto')
  const host = reported('x-forwarded-host')
  const own = 'encrypted' in socket ? 'https' : 'http'
  let missing = ''
  if (reported('x-forwarded-port') === undefined)
    missing += `\r\nx-forwarded-port: ${publicPort(firstOf(host) ?? headers.host ?? '', firstOf(scheme) ?? own)}`
  if (scheme === undefined) missing += `\r\nx-forwarded-proto: ${own}`
  if (host === undefined && headers.host !== undefined) missing += `\r\nx-forwarded-host: ${headers.host}`
  return missing
}

/** A field that the gateway sets in place of the caller's. */
const ACCEPT_ENCODING = 'accept-encoding'
/**
 * Asks for a response that is not compressed, as text for `completeHead`. Without the field, a
 * server may compress it (RFC 9110 section 12.5.3).
 */
export const UNCOMPRESSED = `\r\n${ACCEPT_ENCODING}: identity`

/** Returns the fields of a request whose caller's `Accept-Encoding` is replaced. */
export const withoutCompression = (fields: RequestFields): RequestFields => ({
  ...fields,
  actionOf: (name) => (name === ACCEPT_ENCODING ? 'replace' : fields.actionOf(name)),
})

/**
 * Returns the request's fields as the upstream gets them, without those that frame the body, as
 * text for `completeHead`: Node.js has parsed them, so they are well formed. `idField` is that of
 * the request id. `publicUrl` replaces what the request and trusted proxies say of the URL that
 * the caller used.
 */
export function requestHeaders(
  fields: Readonly<Record<string, string | string[] | undefined>>,
  { request, peer, ip, requestId, trusted }: Received,
  { actionOf, host, ownHost, onDrop }: Pick<RequestFields, 'actionOf' | 'host' | 'ownHost' | 'onDrop'>,
  idField: string,
  publicUrl?: PublicUrl,
): string {
  const { socket } = request
  // HTTP/1.1 needs a Host (RFC 9112 section 3.2).
  let headers = fields['host'] === undefined && ownHost !== undefined ? `\r\nhost: ${ownHost}` : ''
  const named = namedByConnection(String(fields['connection'] ?? ''))
  for (const name in fields) {
    const action = actionOf(name)
    if (action === 'replace' || (publicUrl !== undefined && OF_PUBLIC_URL.has(name))) continue
    if (action === 'drop' || (action === 'from-proxy' && !trusted)) {
      onDrop(name)
      continue
    }
    // A caller's `Connection` field cannot remove what a trusted proxy reports.
    if (action === 'keep' && named?.has(name) === true) continue
    const value = name === 'host' ? (host ?? fields[name]) : fields[name]
    if (typeof value === 'string') headers += `\r\n${name}: ${value}`
    else for (const one of value ?? []) headers += `\r\n${name}: ${one}`
  }
  const chain = trusted ? fields['x-forwarded-for'] : undefined
  headers += `\r\nx-forwarded-for: ${chain === undefined ? '' : `${String(chain)}, `}${peer}`
  headers += publicUrl === undefined ? seenUrlFields(fields, request, trusted) : publicUrlFields(publicUrl)
  const certificate = trusted ? undefined : certificateField(socket)
  if (certificate !== undefined) headers += `\r\nclient-cert: ${certificate}`
  return `${headers}\r\nx-real-ip: ${ip}\r\n${idField}: ${requestId}`
}
