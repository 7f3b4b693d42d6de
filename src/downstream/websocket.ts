import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { ambiguousFraming, type Refusal } from '../errors.ts'
import { bodyLength } from './framing.ts'

/** Base64 of 16 bytes (RFC 6455 section 4.1); not two keys, which Node joins by a comma. */
const KEY = /^[+/\dA-Za-z]{22}==$/
const VERSION = /^\d{1,3}$/
/** RFC 6455 section 1.3. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

const MALFORMED =
  'Open a WebSocket with GET in HTTP/1.1 without a body, and with one each of Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Key and Sec-WebSocket-Version.'

const hasToken = (list: string | undefined, token: string): boolean =>
  list !== undefined &&
  list
    .toLowerCase()
    .split(',')
    .some((one) => one.trim() === token)

/** True if a message switches to WebSocket, and to no other protocol. */
const switchesToWebSocket = ({ upgrade, connection }: IncomingHttpHeaders): boolean =>
  upgrade?.toLowerCase() === 'websocket' && hasToken(connection, 'upgrade')

/** True for a request that opens a WebSocket, and that servers read in one way (RFC 6455 section 4.1). */
export function isHandshake(request: IncomingMessage): boolean {
  const { method, httpVersion, headers } = request
  return (
    method === 'GET' &&
    httpVersion === '1.1' &&
    switchesToWebSocket(headers) &&
    KEY.test(headers['sec-websocket-key'] ?? '') &&
    VERSION.test(headers['sec-websocket-version'] ?? '') &&
    bodyLength(request) === 0
  )
}

/**
 * Returns a 501 for a request that asks for a WebSocket where `isOpened` is false, and a 400 if it is
 * not a handshake that the listener has recognised (`isRecognised`). Both close the connection.
 * Other protocols are ignored, as RFC 9110 section 7.8 allows.
 */
export function refuseWebSocket(
  { upgrade }: IncomingHttpHeaders,
  isOpened: boolean,
  isRecognised: boolean,
): Refusal | undefined {
  if (upgrade === undefined || !hasToken(upgrade, 'websocket')) return undefined
  if (!isOpened) return ambiguousFraming('No WebSocket is opened here.', 'NotImplemented')
  return isRecognised ? undefined : ambiguousFraming(MALFORMED)
}

/**
 * True if a 101 accepts the handshake with this key: its `Sec-WebSocket-Accept` shows that the server
 * has read it as one (RFC 6455 section 4.2.2).
 */
export function acceptsHandshake({ httpVersion, headers }: IncomingMessage, key: string): boolean {
  const accept = createHash('sha1').update(`${key}${GUID}`).digest('base64')
  return httpVersion === '1.1' && switchesToWebSocket(headers) && headers['sec-websocket-accept'] === accept
}
