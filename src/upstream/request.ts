import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBodyAborted, tooLarge } from '../downstream/body.ts'
import { destroyWithReset } from '../downstream/sockets.ts'
import { atIterationEnd } from '../runtime/batch.ts'
import { Refusal, serviceUnavailable } from '../errors.ts'
import type { Outgoing } from './headers.ts'
import type { PooledSocket, Reuse } from './pool.ts'

/** The parts of an upstream that a request uses. */
export interface Backend {
  readonly name: string
  readonly timeoutMs: number
  readonly slowReaderMs: number
  readonly timeouts: { add(request: UpstreamRequest): void; delete(request: UpstreamRequest): void }
  readonly connections: {
    acquire(request: UpstreamRequest): void
    uploaded(request: UpstreamRequest): void
    onStaleSocket(request: UpstreamRequest, socket: PooledSocket): void
  }
  send(request: UpstreamRequest): void
}

const beginAtIterationEnd = atIterationEnd((upstreamRequest: UpstreamRequest) => upstreamRequest.begin())

/** A request to an upstream and its response: one object for its whole life, with one outcome. */
export class UpstreamRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly outgoing: Outgoing
  readonly timeoutMs: number
  readonly backend: Backend
  /** `answered`: complete. `cut`: broken off after the head. `left`: by the caller. `failed`: no response was begun. */
  outcome: 'answered' | 'cut' | 'left' | 'failed' = 'failed'
  error: Refusal | undefined
  /** The request to the upstream; a retry replaces it. */
  clientRequest: ClientRequest | undefined
  /** `performance.now()` when the head of the response came. */
  headAt: number | undefined
  /** The whole body, if it has come before the request is sent. */
  body: Buffer | undefined
  settled = false
  /** Bytes of the response body that were forwarded; written by `streamResponse`. */
  bytes = 0
  /** Which sockets it may use, whether it has asked for one and has a slot, and whether its body is still coming over it: for connections.ts. */
  reuse: Reuse
  socketRequested = false
  hasSlot = false
  uploading = false
  /** Index in the list of timeouts.ts, which also writes `timedOut`, the reason for the log, and `stalledMs`, the time without reading. */
  index = -1
  timedOut: string | undefined
  stalledMs = 0
  /** `performance.now()` at its last progress. */
  silentSince = performance.now()

  readonly #resolve: (ended: UpstreamRequest) => void
  #upstreamResponse: IncomingMessage | undefined
  #received = 0
  constructor(
    backend: Backend,
    request: IncomingMessage,
    response: ServerResponse,
    outgoing: Outgoing,
    resolve: (ended: UpstreamRequest) => void,
  ) {
    this.backend = backend
    this.request = request
    this.response = response
    this.outgoing = outgoing
    this.#resolve = resolve
    this.timeoutMs = outgoing.timeoutMs ?? backend.timeoutMs
    this.body = outgoing.body
    const isRepeatable = outgoing.bodyLength === 0 && (request.method === 'GET' || request.method === 'HEAD')
    this.reuse = isRepeatable ? 'any' : 'fresh'
  }

  /** True if its body is forwarded while it comes. */
  get streamed(): boolean {
    return this.outgoing.bodyLength !== 0 && this.body === undefined
  }

  start(): void {
    const { response } = this
    response.on('error', () => {})
    response.on('close', () => this.settle(response.writableFinished ? 'answered' : 'left'))
    if (response.destroyed) return this.settle('left')
    this.backend.timeouts.add(this)
    beginAtIterationEnd(this)
  }

  /** Sends it; a body that is complete by now, as small ones mostly are, in one write and without stream events. */
  begin(): void {
    const { request, response, outgoing } = this
    if (this.settled) return
    if (this.streamed && request.complete && request.readableLength === outgoing.bodyLength)
      this.body = request.read() as Buffer
    if (!this.streamed) return this.backend.send(this)
    onBodyAborted(request, (reason) => {
      if (!response.writableEnded && this.#upstreamResponse?.complete !== true) this.fail(reason)
    })
    if (this.settled) return
    this.backend.send(this)
    request.on('data', (chunk: Buffer) => this.#onBody(chunk))
    request.on('end', () => {
      if (this.settled) return
      this.silentSince = performance.now()
      if (this.socketRequested) this.backend.connections.uploaded(this)
      else this.backend.connections.acquire(this)
    })
  }

  onRequest(clientRequest: ClientRequest): void {
    this.clientRequest = clientRequest
    // A 101 that the gateway did not ask for (RFC 9110 section 15.2.2).
    clientRequest.on('upgrade', (_: IncomingMessage, socket: Socket) => {
      socket.destroy()
      this.onError(new Error('the upstream switched protocols unasked'))
    })
    if (!this.streamed) this.backend.connections.acquire(this)
  }

  onHead(upstreamResponse: IncomingMessage): void {
    this.#upstreamResponse = upstreamResponse
    this.headAt = this.silentSince = performance.now()
  }

  onProgress(): void {
    this.stalledMs = 0
    this.silentSince = performance.now()
  }

  onError(error: NodeJS.ErrnoException): void {
    // Errors after a complete response do not affect the caller.
    if (this.settled || this.response.writableEnded || this.#upstreamResponse?.complete === true) return
    // The caller has just left, which its response reports next.
    if (this.request.socket.destroyed) return
    // A reused socket that dies before the head: most likely the upstream was closing it.
    const isStale =
      this.headAt === undefined &&
      this.clientRequest?.reusedSocket === true &&
      (error.code === 'ECONNRESET' || error.code === 'EPIPE')
    if (isStale) this.backend.connections.onStaleSocket(this, this.clientRequest!.socket as PooledSocket)
    else this.failAddress(error)
    if (!isStale || this.reuse !== 'any') return this.failGateway(error, 'The upstream broke off.')
    this.reuse = 'new'
    this.backend.send(this)
  }

  failBusy(): void {
    this.fail(serviceUnavailable('The upstream is busy.'))
  }

  failGateway(reason: Error, message = 'The upstream cannot be reached.'): void {
    const cause = new Error(`${this.backend.name}: ${reason.message}`, { cause: reason })
    this.fail(new Refusal('BadGateway', message, { cause }))
  }

  #onBody(chunk: Buffer): void {
    this.#received += chunk.length
    this.silentSince = performance.now()
    if (this.#received > this.outgoing.maxBody) this.fail(tooLarge(this.outgoing.maxBody))
    // Acquire a socket once the body fills the first buffer. A slow sender of a smaller body holds none until the body is complete.
    else if (!this.socketRequested && !this.settled && this.clientRequest!.writableNeedDrain) {
      this.uploading = true
      this.backend.connections.acquire(this)
    }
  }

  failAddress(cause: Error): void {
    const socket = this.clientRequest?.socket as PooledSocket | null | undefined
    if (this.headAt === undefined) socket?.target.health.failed(cause)
  }

  fail(error: Refusal): void {
    if (!this.settled) this.error = error
    this.settle(this.response.headersSent ? 'cut' : 'failed')
  }

  settle(outcome: UpstreamRequest['outcome']): void {
    if (this.settled) return
    this.settled = true
    this.outcome = outcome
    this.backend.timeouts.delete(this)
    // An upstream that answers early need not read the rest of the request.
    if (outcome !== 'answered' || !this.request.complete || this.clientRequest?.writableFinished !== true) {
      this.clientRequest?.destroy()
      this.#upstreamResponse?.destroy()
    }
    // A truncated response must not look complete.
    if (outcome !== 'answered' && this.response.headersSent) {
      // The end of the socket may end an HTTP/1.0 response (RFC 9112 section 6.3).
      const { socket } = this.response
      if (this.request.httpVersionMinor === 0 && socket !== null) destroyWithReset(socket)
      this.response.destroy()
    }
    this.#resolve(this)
  }
}
