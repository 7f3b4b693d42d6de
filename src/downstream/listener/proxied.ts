import type { Socket } from 'node:net'
import { socketUnderTls } from '../../runtime/node-http.ts'
import { parseProxyHeader, type ProxyHeader } from '../proxy-protocol.ts'

/** The headers of the PROXY protocol that came on sockets. */
const headers = new WeakMap<Socket, ProxyHeader>()

/**
 * True if a proxy forwards the connection without the caller's address: `remoteAddress` is the
 * proxy's, but the requests need not be.
 */
export function hidesCaller(socket: Socket): boolean {
  const header = headers.get(socket)
  return header !== undefined && header.address === undefined
}

/** Returns the bytes of the header on a socket, which came before any byte of the caller: 0 without one. */
export const headerBytes = (socket: Socket): number => headers.get(socket)?.bytes ?? 0

/** Makes the address of a header the socket's own address, which everything else reads. */
function setHeader(socket: Socket, header: ProxyHeader): void {
  headers.set(socket, header)
  const { address } = header
  if (address !== undefined) Object.defineProperty(socket, 'remoteAddress', { value: address })
}

/** Gives a TLS socket the address of the header that came before TLS. */
export function inheritHeader(socket: Socket): void {
  const parent = socketUnderTls(socket)
  const header = parent && headers.get(parent)
  if (header !== null && header !== undefined) setHeader(socket, { address: header.address, bytes: 0 })
}

/** Listener for errors of a socket, which its `close` reports. */
function ignoreError(): void {}

/**
 * Reads the header at the start of a connection, and returns the bytes after it to the socket. Calls
 * `done` once: with the header, with the fault of a connection that must be closed, or with undefined
 * if the peer has sent nothing and closed it, as a probe does.
 */
export function readProxyHeader(
  socket: Socket,
  withinMs: number,
  done: (header: ProxyHeader | string | undefined) => void,
): void {
  let received = Buffer.alloc(0)
  const timer = setTimeout(() => finish(`no whole PROXY header within ${withinMs} ms`), withinMs)
  const onReadable = (): void => {
    for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null)
      received = Buffer.concat([received, chunk])
    const header = parseProxyHeader(received)
    if (header !== undefined) finish(header)
  }
  const onEnd = (): void => finish(received.length === 0 ? undefined : 'an incomplete PROXY header')
  function finish(header: ProxyHeader | string | undefined): void {
    clearTimeout(timer)
    socket.off('readable', onReadable).off('end', onEnd).off('close', onEnd)
    if (typeof header === 'object') {
      setHeader(socket, header)
      if (received.length > header.bytes) socket.unshift(received.subarray(header.bytes))
    }
    done(header)
  }
  socket.on('readable', onReadable).on('end', onEnd).on('close', onEnd).on('error', ignoreError)
}
