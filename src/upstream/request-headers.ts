import type { IncomingMessage } from 'node:http'
import type { BodyLength } from '../downstream/framing.ts'
import { certificateField } from '../downstream/client-certificate.ts'
import { namedByConnection, type RequestFields } from '../downstream/request-fields.ts'
import type { AddedFields } from './response-head.ts'

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
  { actionOf, onDrop }: Pick<RequestFields, 'actionOf' | 'onDrop'>,
  idField: string,
): string {
  const { socket } = request
  let headers = ''
  const named = namedByConnection(String(fields['connection'] ?? ''))
  for (const name in fields) {
    const action = actionOf(name)
    if (action === 'replace') continue
    if (action === 'drop' || (action === 'from-proxy' && !trusted)) {
      onDrop(name)
      continue
    }
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
