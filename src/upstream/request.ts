import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBodyAborted, tooLarge } from '../downstream/body.ts'
import { destroyWithReset } from '../downstream/listener/sockets.ts'
import { Refusal, serviceUnavailable } from '../errors.ts'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { type Address, noConnection } from './addresses.ts'
import type { Outgoing } from './request-headers.ts'

export interface Backend {
  readonly timeoutMs: number
  /** Maximum bytes of the head of a response. */
  readonly maxHeaderSize: number
  readonly timeouts: { add(request: UpstreamRequest): void; delete(request: UpstreamRequest): void }
  send(request: UpstreamRequest): void
  acquire(request: UpstreamRequest): void
  uploaded(request: UpstreamRequest): void
  leave(request: UpstreamRequest): void
  release(socket: Socket): void
}

/**
 * Maximum idle time of a socket for a request that cannot be sent twice: every server keeps an idle
 * socket this long (gunicorn: 2 s).
 */
const FRESH_MS = 500

/** Called once, at the end of a request to an upstream. */
export type OnRequestEnd = (ended: UpstreamRequest) => void

/** Listener for errors that are reported elsewhere. */
export function ignore(): void {}

/**
 * A request to an upstream and its response: one object for its whole life, with one outcome. What
 * it waits for, before the response is streamed:
 *
 *     body ──▶ slot ──▶ connection ──▶ response
 *
 * Without a body to wait for, it begins with `slot`, and with a free socket it skips `slot` and
 * `connection`. A retry goes back to them. docs/architecture.md says how each wait may fail.
 */
export class UpstreamRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly outgoing: Outgoing
  readonly backend: Backend
  /** `answered`: complete. `cut`: broken off after the head. `left`: by the caller. `failed`: no response was begun. */
  outcome: 'answered' | 'cut' | 'left' | 'failed' | undefined
  error: Refusal | undefined
  /** The request to the upstream; a retry replaces it. */
  clientRequest: ClientRequest | undefined
  /** `performance.now()` when the head of the response came. */
  headAt: number | undefined
  /** The whole body, if it has come before the request is sent. */
  body: Buffer | undefined
  /** Bytes of the response body that were forwarded; written by `streamResponse`. */
  bytes = 0
  /**
   * `body`: until it is complete or fills a first buffer. `slot`: in the queue (wait-queue.ts). The
   * last two are set by connections.ts and connection.ts.
   */
  stage: 'body' | 'slot' | 'connection' | 'response' = 'body'
  /** The value of `waitsFor` when the caller disconnected. */
  waitedFor: UpstreamRequest['waitsFor']
  /** True if it asked for a socket before its body was complete, which it still is not. */
  uploading = false
  /** True while the caller and the upstream exchange bytes of a WebSocket. */
  isSwitched = false
  /** True if one of them has ended the WebSocket. */
  isEnded = false
  /** Bytes of a WebSocket from the caller. */
  received = 0
  /** Maximum time that its socket was idle before; 0 for a new socket. */
  maxIdleMs: number
  /** The address of its socket, and how long that keeps idle sockets, if it announced that. */
  address: Address | undefined
  keepAliveMs: number | undefined
  /** True if its response has no body; written by `streamResponse`. */
  isBodiless = false
  /** Index in the list of timeouts. */
  index = -1
  /** Bytes of its body that have come, if it is streamed. */
  streamedBytes = 0
  /** `performance.now()` at its last progress. */
  silentSince = performance.now()

  readonly #onEnd: OnRequestEnd
  #upstreamResponse: IncomingMessage | undefined

  constructor(backend: Backend, response: ServerResponse, outgoing: Outgoing, onEnd: OnRequestEnd) {
    const { req: request } = response
    this.backend = backend
    this.request = request
    this.response = response
    this.outgoing = outgoing
    this.#onEnd = onEnd
    this.body = outgoing.body
    const isRead = request.method === 'GET' || request.method === 'HEAD'
    this.maxIdleMs = isRead && outgoing.bodyLength === 0 ? Number.POSITIVE_INFINITY : FRESH_MS
    // The connection then has carried nothing else, and needs no retry.
    if (outgoing.isHandshake) this.maxIdleMs = 0
    response.on('error', ignore)
    response.on('close', () => this.settle(response.writableFinished || this.isEnded ? 'answered' : 'left'))
    if (response.destroyed) this.settle('left')
    else backend.timeouts.add(this)
    callAtIterationEnd(() => this.#begin())
  }

  /** True if its response is complete. */
  get isAnswered(): boolean {
    return this.#upstreamResponse?.complete === true
  }

  /** True if a faulty upstream could send more after its response; see `REST_MS`. */
  get mayBeFollowed(): boolean {
    return this.isBodiless || this.outgoing.bodyLength !== 0
  }

  /** True if its body is forwarded while it comes. */
  get streamed(): boolean {
    return this.outgoing.bodyLength !== 0 && this.body === undefined
  }

  get settled(): boolean {
    return this.outcome !== undefined
  }

  /** True if the caller has just left, or its socket was reset: its response reports that next. */
  get isLeaving(): boolean {
    return this.request.socket.destroyed
  }

  /** True if the rest of its body is to come from the caller, and the upstream accepts more of it. */
  get lacksBody(): boolean {
    return this.streamed && !this.request.complete && this.clientRequest?.writableNeedDrain !== true
  }

  /** The current wait: `body` only while the caller sends; undefined before the request begins. */
  get waitsFor(): 'body' | 'slot' | 'connection' | 'response' | undefined {
    if (this.lacksBody) return 'body'
    return this.stage === 'body' ? undefined : this.stage
  }

  /** Sends it; a body that is complete by now, as small ones mostly are, in one write and without stream events. */
  #begin(): void {
    const { request, response, outgoing } = this
    if (this.settled) return
    if (this.streamed && request.complete && request.readableLength === outgoing.bodyLength)
      this.body = request.read() as Buffer
    if (!this.streamed) return this.backend.send(this)
    this.backend.send(this)
    request.on('data', (chunk: Buffer) => this.#onBody(chunk))
    request.on('end', () => {
      if (this.settled) return
      this.silentSince = performance.now()
      if (this.stage === 'body') this.backend.acquire(this)
      else this.backend.uploaded(this)
    })
    onBodyAborted(request, (reason) => {
      if (!response.writableEnded && !this.isAnswered) this.fail(reason)
    })
  }

  onRequest(clientRequest: ClientRequest): void {
    this.clientRequest = clientRequest
    if (!this.streamed) this.backend.acquire(this)
  }

  onHead(upstreamResponse: IncomingMessage, keepAliveMs: number | undefined): void {
    this.address!.health.succeeded()
    this.#upstreamResponse = upstreamResponse
    this.keepAliveMs = keepAliveMs
    this.headAt = this.silentSince = performance.now()
  }

  /** Records that the upstream has switched to WebSocket. */
  onSwitch(): void {
    this.address!.health.succeeded()
    this.isSwitched = true
    this.headAt = this.silentSince = performance.now()
  }

  onError(error: NodeJS.ErrnoException): void {
    // Errors after a complete response do not affect the caller.
    if (this.settled || this.response.writableEnded || this.isAnswered) return
    if (this.isLeaving) return
    // No fault of the address: callers can cause it, by the cookies that it sets.
    if (error.code === 'HPE_HEADER_OVERFLOW') {
      const message = `The head of the upstream's response is longer than ${this.backend.maxHeaderSize} bytes.`
      return this.failGateway(error, message)
    }
    // A reused socket that dies before the head: most likely the upstream was closing it.
    const isStale =
      this.headAt === undefined &&
      this.clientRequest?.reusedSocket === true &&
      (error.code === 'ECONNRESET' || error.code === 'EPIPE')
    if (!isStale && !this.#isCutUpload(error)) this.failAddress(error)
    if (!isStale || this.maxIdleMs === FRESH_MS) return this.failGateway(error, 'The upstream broke off.')
    this.maxIdleMs = 0
    this.backend.release(this.clientRequest!.socket!)
    this.backend.send(this)
  }

  /**
   * True if the connection ended while the body was being sent. No fault of the address, but usually a
   * refusal of an upload, which callers can cause.
   */
  #isCutUpload({ code }: NodeJS.ErrnoException): boolean {
    if (!this.streamed || this.clientRequest?.writableFinished === true) return false
    return code === 'ECONNRESET' || code === 'EPIPE'
  }

  /** Ends it if it has made no progress for its timeout, unless it waits for the caller. */
  checkProgress(now: number): void {
    const { response, stage, backend } = this
    const { timeoutMs = backend.timeoutMs } = this.outgoing
    if (this.isLeaving || now - this.silentSince < timeoutMs) return
    // `listen.requestTimeout` applies to a caller that is still sending.
    if (this.headAt === undefined && this.lacksBody) return
    // `resetSlowReaders` applies to a caller that does not read.
    const isUnread = response.socket?.writableNeedDrain === true
    if (response.headersSent && (isUnread || response.writableEnded)) return
    if (stage === 'slot') this.failBusy()
    else if (stage === 'connection') this.failGateway(noConnection(timeoutMs))
    else {
      const cause = new Error(`silent for ${timeoutMs} ms`)
      this.failAddress(cause)
      const what = this.isSwitched
        ? 'The WebSocket was silent for too long.'
        : 'The upstream did not answer in time.'
      this.fail(new Refusal('GatewayTimeout', what, { cause }))
    }
  }

  failBusy(): void {
    this.fail(serviceUnavailable('The upstream is busy.'))
  }

  failGateway(cause: Error, message = 'The upstream cannot be reached.'): void {
    this.fail(new Refusal('BadGateway', message, { cause }))
  }

  #onBody(chunk: Buffer): void {
    this.streamedBytes += chunk.length
    this.silentSince = performance.now()
    if (this.streamedBytes > this.outgoing.maxBody) this.fail(tooLarge(this.outgoing.maxBody))
    // Acquire a socket once the body fills the first buffer. A slow sender of a smaller body holds
    // none until the body is complete.
    else if (this.stage === 'body' && !this.settled && this.clientRequest!.writableNeedDrain) {
      this.uploading = true
      this.backend.acquire(this)
    }
  }

  failAddress(cause: Error): void {
    if (this.headAt === undefined) this.address?.health.failed(cause)
  }

  fail(error: Refusal): void {
    if (this.settled) return
    this.error = error
    this.settle(this.response.headersSent ? 'cut' : 'failed')
  }

  settle(outcome: NonNullable<UpstreamRequest['outcome']>): void {
    if (this.settled) return
    this.outcome = outcome
    if (outcome === 'left') this.waitedFor = this.waitsFor
    this.backend.timeouts.delete(this)
    if (this.stage === 'slot') this.backend.leave(this)
    // An upstream that answers early need not read the rest of the request.
    if (outcome !== 'answered' || !this.request.complete || !this.clientRequest?.writableFinished) {
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
    this.#onEnd(this)
  }
}
