import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBreak, tooLarge } from '../downstream/body.ts'
import type { Refusal } from '../errors.ts'
import type { Addresses } from './addresses.ts'
import { type Answer, faultOf, passBack } from './response.ts'
import { broken, busy, silent, unreachable } from './errors.ts'
import type { Send, Sent } from './proxy.ts'
import type { Claim, Sockets } from './connections.ts'

/** What every request to one upstream has in common. */
export interface Way {
  readonly name: string
  readonly timeoutMs: number
  /** How long a caller that seems to take nothing of its answer is given at least. */
  readonly readMs: number
  readonly addresses: Addresses
  readonly sockets: Sockets
  readonly send: Send
}

/** One request as the earlier stages understood it. */
export interface Outgoing extends Sent {
  /** Most bytes of a body of unknown length. */
  readonly maxBody: number
  /** In place of the upstream's, where the route has its own. */
  readonly timeoutMs: number | undefined
  /** The gateway's rate-limit fields, as a flat list, on a limited route. */
  readonly rateLimit: readonly string[] | undefined
  /** In whose share of the upstream's sockets it is counted. */
  readonly caller: string
}

/** How a forwarded request ended; times are `performance.now()` milliseconds. */
export interface Forwarded {
  /** `answered`: whole. `cut`: broken off after the head. `left`: by the caller. `failed`: no answer was begun. */
  readonly outcome: 'answered' | 'cut' | 'left' | 'failed'
  /** Why it was cut or failed. */
  readonly error?: Refusal
  /** Why it was the gateway that ended it, where it did not wait for the caller any longer. */
  readonly givenUp?: string
  readonly headAt?: number
}

/** Takes one request to its upstream, and the answer back; what `Forward` promises is kept here. */
export function pass(
  way: Way,
  request: IncomingMessage,
  response: ServerResponse,
  outgoing: Outgoing,
): Promise<Forwarded> {
  const { name, addresses, sockets } = way
  return new Promise((resolve) => {
    const timeoutMs = outgoing.timeoutMs ?? way.timeoutMs
    const bodiless = outgoing.bodyLength === 0
    const streamed = !bodiless && outgoing.body === undefined
    const repeatable = bodiless && (request.method === 'GET' || request.method === 'HEAD')
    let proxyRequest: ClientRequest | undefined
    let claim: Claim | undefined
    let upstreamResponse: IncomingMessage | undefined
    let headAt: number | undefined
    let answer: Answer | undefined
    let settled = false
    let retried = false
    /** For how long the caller seems to take nothing. */
    let unreadMs = 0

    const timer = setTimeout(onSilence, timeoutMs)

    const settle = (outcome: Forwarded['outcome'], why: Pick<Forwarded, 'error' | 'givenUp'> = {}): void => {
      if (settled) return
      settled = true
      clearTimeout(timer)
      // An upstream that answers early need not take the rest of the request.
      if (outcome !== 'answered' || !request.complete || proxyRequest?.writableFinished !== true) {
        proxyRequest?.destroy()
        upstreamResponse?.destroy()
      }
      // Once begun, an answer that is not whole must never look whole.
      if (outcome !== 'answered' && answer?.begun() === true) response.destroy()
      resolve({
        outcome,
        ...why,
        ...(headAt !== undefined && { headAt }),
      })
    }
    const fail = (error: Refusal): void => settle(answer?.begun() === true ? 'cut' : 'failed', { error })

    function onSilence(): void {
      // A caller that is still sending is the caller's delay; `listen.requestTimeout` bounds it.
      if (
        headAt === undefined &&
        !bodiless &&
        !request.complete &&
        proxyRequest?.writableNeedDrain !== true
      ) {
        timer.refresh()
        return
      }
      // What has come from the upstream waits for a caller that takes none of it, or too little for its system to tell.
      if (answer?.begun() === true && (response.writableNeedDrain || response.writableEnded)) {
        unreadMs += timeoutMs
        if (unreadMs < way.readMs) timer.refresh()
        else settle('left', { givenUp: `the caller read too little for ${unreadMs} ms` })
        return
      }
      if (claim?.holds === false) {
        fail(busy())
        return
      }
      failAt(`silent for ${timeoutMs} ms`)
      if (claim !== undefined && sockets.addressOf(claim.request) === undefined)
        fail(unreachable(name, `no connection within ${timeoutMs} ms`))
      else fail(silent(name, timeoutMs))
    }

    /** Counts against the address, where that was asked and has not answered. */
    function failAt(cause: string): void {
      const address = headAt === undefined && proxyRequest && sockets.addressOf(proxyRequest)
      if (address) addresses.failed(address, cause)
    }

    const onError = (error: Error): void => {
      // What an upstream does after its whole answer is no concern of the caller's.
      if (settled || response.writableEnded || upstreamResponse?.complete === true) return
      const stale = isStale(error)
      if (stale) sockets.died(proxyRequest!)
      if (stale && !retried && repeatable) {
        retried = true
        send()
        return
      }
      if (!stale) failAt(error.message)
      fail(broken(name, error))
    }

    /** Did a kept-alive socket die unanswered, most likely because the upstream was just closing it? */
    const isStale = (error: NodeJS.ErrnoException): boolean =>
      headAt === undefined &&
      proxyRequest?.reusedSocket === true &&
      (error.code === 'ECONNRESET' || error.code === 'EPIPE')

    const onHead = (incoming: IncomingMessage): void => {
      const fault = faultOf(incoming)
      if (settled || fault !== undefined) {
        incoming.destroy()
        onError(new Error(fault))
        return
      }
      const address = sockets.addressOf(proxyRequest!)
      if (address !== undefined) addresses.answered(address)
      upstreamResponse = incoming
      headAt = performance.now()
      timer.refresh()
      answer = passBack(incoming, request, response, outgoing.rateLimit, {
        onProgress() {
          unreadMs = 0
          timer.refresh()
        },
        onBroken: onError,
        onUnfit: (error) => fail(broken(name, error)),
        isOver: () => settled,
      })
    }

    const onRequest = (sent: ClientRequest): void => {
      proxyRequest = sent
      sent.on('response', onHead)
      // A 101 that nobody asked for (RFC 9110 section 15.2.2).
      sent.on('upgrade', (_: IncomingMessage, socket: Socket) => {
        socket.destroy()
        onError(new Error('the upstream switched protocols unasked'))
      })
      if (!streamed) take(false)
    }

    const take = (uploading: boolean): void => {
      claim = {
        request: proxyRequest!,
        caller: outgoing.caller,
        reuse: retried ? 'never' : repeatable ? 'freely' : 'surely',
        uploading,
        holds: false,
        onFull: () => fail(busy()),
        onUnreachable: (failure) => fail(unreachable(name, failure)),
      }
      sockets.take(claim)
    }

    const send = (): void => {
      try {
        way.send(request, response, outgoing, onRequest, onError)
      } catch (error) {
        fail(unreachable(name, error))
      }
    }

    response.on('error', ignore)
    response.on('close', () => settle(response.writableFinished ? 'answered' : 'left'))
    if (response.destroyed) {
      settle('left')
      return
    }

    if (streamed) {
      onBreak(request, (reason) => {
        if (response.writableEnded || upstreamResponse?.complete === true) return
        fail(reason)
      })
      if (settled) return
    }

    send()
    if (!streamed) return
    let received = 0
    request.on('data', (chunk: Buffer) => {
      received += chunk.length
      timer.refresh()
      if (received > outgoing.maxBody) fail(tooLarge(outgoing.maxBody))
      // A body that fills the first buffer is passed on while it comes; a sender of less holds no socket until it is whole.
      else if (claim === undefined && !settled && proxyRequest!.writableNeedDrain) take(true)
    })
    request.on('end', () => {
      if (settled) return
      timer.refresh()
      if (claim === undefined) take(false)
      else sockets.uploaded(claim)
    })
  })
}

function ignore(): void {}
