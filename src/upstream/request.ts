import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBodyAborted, tooLarge } from '../downstream/body.ts'
import { destroyWithReset } from '../downstream/sockets.ts'
import { atIterationEnd } from '../runtime/batch.ts'
import { Refusal, serviceUnavailable } from '../errors.ts'
import type { PooledSocket, Reuse } from './pool.ts'
import type { Outgoing } from './proxy.ts'
import { streamResponse } from './response.ts'
import type { Backend } from './upstream.ts'

const beginAtIterationEnd = atIterationEnd((one: UpstreamRequest) => one.begin())

/** A request to an upstream and its answer: one object for its whole life, with one outcome. */
export class UpstreamRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly outgoing: Outgoing
  readonly timeoutMs: number
  /** The request to the upstream; a retry is another one. */
  sent: ClientRequest | undefined
  reuse: Reuse
  /** True while its body is still coming over a socket. */
  uploading = false
  asksForSocket = false
  /** True while it has a socket, or one is being opened for it. */
  hasSlot = false
  settled = false
  /** Its index in the bag of the upstream's timeouts. */
  index = -1
  /** `performance.now()` at its last progress. */
  silentSince = performance.now()
  /** `answered`: whole. `cut`: broken off after the head. `left`: by the caller. `failed`: no answer was begun. */
  outcome: 'answered' | 'cut' | 'left' | 'failed' = 'failed'
  error: Refusal | undefined
  /** Why the gateway ended it, if it did not wait for the caller any longer. */
  timedOut: string | undefined
  /** `performance.now()` when the head of the answer came. */
  headAt: number | undefined
  readonly backend: Backend
  readonly #resolve: (ended: UpstreamRequest) => void
  /** The whole body, if it has come before the request is sent. */
  body: Buffer | undefined
  #answer: IncomingMessage | undefined
  #received = 0
  /** Bytes of the answer's body that were passed on. */
  bytes = 0
  /** How long the caller seems to have read nothing. */
  unreadMs = 0

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

  /** True if its body is passed on while it comes. */
  get streamed(): boolean {
    return this.outgoing.bodyLength !== 0 && this.body === undefined
  }

  start(): void {
    const { response } = this
    response.on('error', ignore)
    response.on('close', () => this.settle(response.writableFinished ? 'answered' : 'left'))
    if (response.destroyed) return this.settle('left')
    this.backend.timeouts.add(this)
    beginAtIterationEnd(this)
  }

  /** Sends it, with its body if that has come whole by now, as a small one mostly has: in one write, and without a stream's events. */
  begin(): void {
    const { request, response, outgoing } = this
    if (this.settled) return
    if (this.streamed && request.complete && request.readableLength === outgoing.bodyLength) {
      this.body = request.read() as Buffer
    }
    if (!this.streamed) return this.backend.send(this)
    onBodyAborted(request, (reason) => {
      if (!response.writableEnded && this.#answer?.complete !== true) this.fail(reason)
    })
    if (this.settled) return
    this.backend.send(this)
    request.on('data', (chunk: Buffer) => this.#onBody(chunk))
    request.on('end', () => {
      if (this.settled) return
      this.silentSince = performance.now()
      if (this.asksForSocket) this.backend.connections.uploaded(this)
      else this.backend.connections.acquire(this)
    })
  }

  onRequest(sent: ClientRequest): void {
    this.sent = sent
    sent.on('response', (answer) => streamResponse(answer, this))
    // A 101 that the gateway did not ask for (RFC 9110 section 15.2.2).
    sent.on('upgrade', (_: IncomingMessage, socket: Socket) => {
      socket.destroy()
      this.onError(new Error('the upstream switched protocols unasked'))
    })
    if (!this.streamed) this.backend.connections.acquire(this)
  }

  onHead(answer: IncomingMessage): void {
    this.#answer = answer
    this.headAt = this.silentSince = performance.now()
  }

  onProgress(): void {
    this.unreadMs = 0
    this.silentSince = performance.now()
  }

  onError(error: NodeJS.ErrnoException): void {
    // What an upstream does after its whole answer is no concern of the caller's.
    if (this.settled || this.response.writableEnded || this.#answer?.complete === true) return
    // The caller has just left, which its response reports next.
    if (this.request.socket.destroyed) return
    // A kept-alive socket that dies unanswered: most likely the upstream was just closing it.
    const isStale =
      this.headAt === undefined &&
      this.sent?.reusedSocket === true &&
      (error.code === 'ECONNRESET' || error.code === 'EPIPE')
    if (isStale) this.backend.connections.onStaleSocket(this, this.sent!.socket as PooledSocket)
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
    // A body that fills the first buffer is passed on while it comes; a sender of less holds no socket until it is whole.
    else if (!this.asksForSocket && !this.settled && this.sent!.writableNeedDrain) {
      this.uploading = true
      this.backend.connections.acquire(this)
    }
  }

  failAddress(cause: Error): void {
    const socket = this.sent?.socket as PooledSocket | null | undefined
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
    // An upstream that answers early need not take the rest of the request.
    if (outcome !== 'answered' || !this.request.complete || this.sent?.writableFinished !== true) {
      this.sent?.destroy()
      this.#answer?.destroy()
    }
    // Once begun, an answer that is not whole must never look whole.
    if (outcome !== 'answered' && this.response.headersSent) {
      // The end of the socket may end an answer of HTTP/1.0 (RFC 9112 section 6.3).
      const { socket } = this.response
      if (this.request.httpVersionMinor === 0 && socket !== null) destroyWithReset(socket)
      this.response.destroy()
    }
    this.#resolve(this)
  }
}

function ignore(): void {}
