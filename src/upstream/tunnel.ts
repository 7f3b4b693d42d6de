import { type IncomingMessage, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { readReleased } from '../downstream/listener/released.ts'
import { acceptsHandshake } from '../downstream/websocket.ts'
import { appendFields } from '../runtime/node-http.ts'
import type { UpstreamRequest } from './request.ts'
import { readResponseHead } from './response-head.ts'

const SWITCH = ['Connection', 'Upgrade', 'Upgrade', 'websocket']

/**
 * Opens a WebSocket: sends the 101 to the caller, and from then on the bytes of each side to the
 * other. `head` are the bytes behind the 101. Fails the request if the 101 does not accept the
 * handshake of the caller: the bytes behind it could be anything.
 */
export function openTunnel(
  incoming: IncomingMessage,
  upstream: Socket,
  head: Buffer,
  owner: UpstreamRequest,
): void {
  const { request, response, outgoing, settled } = owner
  if (settled || !acceptsHandshake(incoming, request.headers['sec-websocket-key']!)) {
    upstream.destroy()
    // No fault of the address: callers choose what they open.
    const cause = new Error('its 101 does not accept the handshake')
    return owner.failGateway(cause, 'The upstream does not accept WebSockets.')
  }
  const caller = response.socket!
  owner.onSwitch()
  response.writeHead(101, STATUS_CODES[101], SWITCH)
  appendFields(response, readResponseHead(incoming.rawHeaders, 101, outgoing).headers)
  response.flushHeaders()
  if (head.length > 0) upstream.unshift(head)
  relay(upstream, caller, owner, (count) => (owner.bytes += count))
  relay(caller, upstream, owner, (count) => (owner.received += count))
  closeTogether(upstream, caller, owner)
  readReleased(caller)
}

/** Sends the bytes of one side to the other, and reads no more of them than the other side reads. */
function relay(from: Socket, to: Socket, owner: UpstreamRequest, count: (bytes: number) => void): void {
  from.on('data', (chunk: Buffer) => {
    // A side that has ended may get more bytes, which nothing reads.
    if (!to.writable) return
    owner.silentSince = performance.now()
    count(chunk.length)
    if (!to.write(chunk)) from.pause()
  })
  to.on('drain', () => {
    owner.silentSince = performance.now()
    from.resume()
  })
}

/** Ends each side after the last byte of the other, and both at the end of the request. */
function closeTogether(upstream: Socket, caller: Socket, owner: UpstreamRequest): void {
  const endCaller = (): void => {
    owner.isEnded = true
    // Closes it also if the caller does not.
    if (caller.writable) caller.destroySoon()
  }
  upstream.once('end', endCaller)
  caller.once('end', () => {
    owner.isEnded = true
    upstream.end()
  })
  upstream.once('close', () => {
    if (owner.isEnded) endCaller()
    else owner.failGateway(upstream.errored ?? new Error('closed'), 'The upstream broke off.')
  })
  owner.response.once('close', () => upstream.destroy())
}
