import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBreak, tooLarge } from '../downstream/body.ts'
import { Refusal, serviceUnavailable } from '../errors.ts'
import type { Claim, Connections } from './connections.ts'
import { readAnswerHead } from './headers.ts'
import type { PooledSocket, Reuse } from './pool.ts'
import type { Outgoing, Sender } from './proxy.ts'
import { type Answered, faultOf, passBack } from './response.ts'
import type { Timeouts } from './timeouts.ts'

/** What all requests to one upstream have in common. */
export interface Backend {
  readonly name: string
  readonly timeoutMs: number
  /** How long a caller that seems to read nothing of its answer is given at least. */
  readonly readMs: number
  readonly connections: Connections
  readonly timeouts: Timeouts
  readonly send: (sender: Sender) => void
}

/** How a forwarded request ended; times are `performance.now()` milliseconds. */
export interface Forwarded {
  /** `answered`: whole. `cut`: broken off after the head. `left`: by the caller. `failed`: no answer was begun. */
  readonly outcome: 'answered' | 'cut' | 'left' | 'failed'
  /** Why it was cut or failed. */
  readonly error: Refusal | undefined
  /** Why the gateway ended it, if it did not wait for the caller any longer. */
  readonly givenUp: string | undefined
  readonly headAt: number | undefined
}

/** One request on its way to an upstream, and the answer on its way back: one object for its whole life, with one outcome. */
export class UpstreamRequest implements Forwarded, Claim, Answered, Sender {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly outgoing: Outgoing
  readonly caller: string
  readonly timeoutMs: number
  silentSince = performance.now()
  sent: ClientRequest | undefined
  reuse: Reuse
  uploading = false
  holds = false
  over = false
  outcome: Forwarded['outcome'] = 'failed'
  error: Refusal | undefined
  givenUp: string | undefined
  headAt: number | undefined
  private readonly backend: Backend
  private readonly resolve: (forwarded: Forwarded) => void
  /** True if its body is passed on while it comes. */
  private readonly streamed: boolean
  private answer: IncomingMessage | undefined
  private claimed = false
  private received = 0
  /** How long the caller seems to have read nothing. */
  private unreadMs = 0

  constructor(
    backend: Backend,
    request: IncomingMessage,
    response: ServerResponse,
    outgoing: Outgoing,
    resolve: (forwarded: Forwarded) => void,
  ) {
    const { method } = request
    this.backend = backend
    this.request = request
    this.response = response
    this.outgoing = outgoing
    this.resolve = resolve
    this.caller = outgoing.caller
    this.timeoutMs = outgoing.timeoutMs ?? backend.timeoutMs
    this.streamed = outgoing.bodyLength !== 0 && outgoing.body === undefined
    this.reuse = outgoing.bodyLength === 0 && (method === 'GET' || method === 'HEAD') ? 'any' : 'fresh'
  }

  start(): void {
    const { request, response, streamed } = this
    response.on('error', ignore)
    response.on('close', () => this.settle(response.writableFinished ? 'answered' : 'left'))
    if (response.destroyed) {
      this.settle('left')
      return
    }
    this.backend.timeouts.add(this)
    if (streamed) {
      onBreak(request, (reason) => {
        if (!response.writableEnded && this.answer?.complete !== true) this.fail(reason)
      })
      if (this.over) return
    }
    this.send()
    if (!streamed) return
    request.on('data', (chunk: Buffer) => this.onBody(chunk))
    request.on('end', () => this.onBodyEnd())
  }

  onRequest(sent: ClientRequest): void {
    this.sent = sent
    sent.on('response', (answer) => this.onAnswer(answer))
    // A 101 that the gateway did not ask for (RFC 9110 section 15.2.2).
    sent.on('upgrade', (_: IncomingMessage, socket: Socket) => {
      socket.destroy()
      this.onError(new Error('the upstream switched protocols unasked'))
    })
    if (!this.streamed) this.claim()
  }

  onProgress(): void {
    this.unreadMs = 0
    this.silentSince = performance.now()
  }

  onError(error: NodeJS.ErrnoException): void {
    // What an upstream does after its whole answer is no concern of the caller's.
    if (this.over || this.response.writableEnded || this.answer?.complete === true) return
    // A kept-alive socket that dies unanswered: most likely the upstream was just closing it.
    const isStale =
      this.headAt === undefined &&
      this.sent?.reusedSocket === true &&
      (error.code === 'ECONNRESET' || error.code === 'EPIPE')
    if (!isStale) this.failAddress(error)
    else this.backend.connections.onStaleSocket(this, this.sent!.socket as PooledSocket)
    if (isStale && this.reuse === 'any') {
      this.reuse = 'new'
      this.send()
    } else this.onUnfit(error)
  }

  onUnfit(error: Error): void {
    this.fail(badGateway('The upstream broke off.', this.backend.name, error))
  }

  onFull(): void {
    this.fail(serviceUnavailable('The upstream is busy.'))
  }

  onUnreachable(cause: Error): void {
    this.fail(badGateway('The upstream cannot be reached.', this.backend.name, cause))
  }

  /** Ends the request unless the silence is the caller's. */
  onTimeout(): void {
    const { request, response, sent, timeoutMs, backend } = this
    this.silentSince = performance.now()
    // A caller that is still sending is bounded by `listen.requestTimeout`.
    if (this.headAt === undefined && this.streamed && !request.complete && sent?.writableNeedDrain !== true)
      return
    // What has come from the upstream waits for a caller that reads none of it, or too little for the system to report.
    if (response.headersSent && (response.writableNeedDrain || response.writableEnded)) {
      this.unreadMs += timeoutMs
      if (this.unreadMs < backend.readMs) return
      this.givenUp = `the caller read too little for ${this.unreadMs} ms`
      this.settle('left')
      return
    }
    if (this.claimed && !this.holds) this.onFull()
    else if (this.claimed && !sent?.socket) {
      this.onUnreachable(new Error(`no connection within ${timeoutMs} ms`))
    } else {
      this.failAddress(new Error(`silent for ${timeoutMs} ms`))
      const cause = `${backend.name} was silent for ${timeoutMs} ms`
      this.fail(new Refusal('GatewayTimeout', 'The upstream did not answer in time.', { cause }))
    }
  }

  private send(): void {
    try {
      this.backend.send(this)
    } catch (error) {
      this.onUnreachable(error as Error)
    }
  }

  private claim(): void {
    this.claimed = true
    this.backend.connections.acquire(this)
  }

  private onAnswer(answer: IncomingMessage): void {
    const head = readAnswerHead(answer.rawHeaders, answer.statusCode!, this.outgoing.rateLimit)
    const fault = faultOf(answer, head)
    if (this.over || fault !== undefined) {
      answer.destroy()
      this.onError(new Error(fault))
      return
    }
    const socket = this.sent!.socket as PooledSocket
    socket.announcedMs = head.keepAliveMs
    socket.target.health.succeeded()
    this.answer = answer
    this.headAt = this.silentSince = performance.now()
    passBack(answer, head, this)
  }

  private onBody(chunk: Buffer): void {
    this.received += chunk.length
    this.silentSince = performance.now()
    if (this.received > this.outgoing.maxBody) this.fail(tooLarge(this.outgoing.maxBody))
    // A body that fills the first buffer is passed on while it comes; a sender of less holds no socket until it is whole.
    else if (!this.claimed && !this.over && this.sent!.writableNeedDrain) {
      this.uploading = true
      this.claim()
    }
  }

  private onBodyEnd(): void {
    if (this.over) return
    this.silentSince = performance.now()
    if (this.claimed) this.backend.connections.uploaded(this)
    else this.claim()
  }

  /** Counts a failure of the address, if it was asked and has not answered. */
  private failAddress(cause: Error): void {
    const socket = this.sent?.socket as PooledSocket | null | undefined
    if (this.headAt === undefined) socket?.target.health.failed(cause)
  }

  private fail(error: Refusal): void {
    if (!this.over) this.error = error
    this.settle(this.response.headersSent ? 'cut' : 'failed')
  }

  private settle(outcome: Forwarded['outcome']): void {
    if (this.over) return
    this.over = true
    this.outcome = outcome
    this.backend.timeouts.delete(this)
    // An upstream that answers early need not take the rest of the request.
    if (outcome !== 'answered' || !this.request.complete || this.sent?.writableFinished !== true) {
      this.sent?.destroy()
      this.answer?.destroy()
    }
    // Once begun, an answer that is not whole must never look whole.
    if (outcome !== 'answered' && this.response.headersSent) this.response.destroy()
    this.resolve(this)
  }
}

function badGateway(message: string, upstream: string, cause: Error): Refusal {
  return new Refusal('BadGateway', message, { cause: new Error(`${upstream}: ${cause.message}`, { cause }) })
}

function ignore(): void {}
