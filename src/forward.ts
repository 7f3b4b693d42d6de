import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onBreak, tooLarge } from './body.ts'
import type { GatewayError } from './errors.ts'
import { type AddressChange, createAddresses } from './forward/addresses.ts'
import { type Answer, faultOf, passBack } from './forward/answer.ts'
import { createConnect, type Tls } from './forward/connect.ts'
import { broken, busy, silent, unreachable } from './forward/errors.ts'
import { createSend, type Sent } from './forward/proxy.ts'
import { type Claim, createSockets } from './forward/sockets.ts'

/** A backend, and how long it is waited for. */
export interface Upstream {
  readonly name: string
  /** Where it answers, such as `http://data.internal:4000`; several are used in turn, all by the same scheme. */
  readonly origins: readonly string[]
  /** Milliseconds until the head of the answer, and between the bytes of a body in either direction. */
  readonly timeoutMs: number
  readonly connectTimeoutMs: number
  /** How `https` is spoken: PEM texts. What is not set is as Node.js has it, but no certificate goes unverified. */
  readonly tls: Tls | undefined
  readonly maxConnections: number
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
  readonly error?: GatewayError
  /** Why it was the gateway that ended it, where it did not wait for the caller any longer. */
  readonly givenUp?: string
  readonly headAt?: number
}

export interface Forward {
  (request: IncomingMessage, response: ServerResponse, outgoing: Outgoing): Promise<Forwarded>
  /** The upstream's addresses, and which of them are in use. */
  addresses(): readonly { readonly address: string; readonly up: boolean }[]
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/**
 * Streams requests to one upstream over kept-alive sockets, and its answers back.
 * Never rejects, never leaves the caller waiting longer than the timeouts, never completes an answer that was cut.
 */
export function createForward(upstream: Upstream, onChange: (change: AddressChange) => void): Forward {
  const { protocol } = new URL(upstream.origins[0]!)
  const addresses = createAddresses(upstream.origins, (change) => {
    if (!change.up) sockets.leave(change.address)
    onChange(change)
  })
  const tls = protocol === 'https:' ? (upstream.tls ?? {}) : undefined
  const sockets = createSockets({
    addresses,
    connect: createConnect(upstream.connectTimeoutMs, tls),
    max: upstream.maxConnections,
  })
  const sendBy = createSend(protocol)

  const forward = (
    request: IncomingMessage,
    response: ServerResponse,
    outgoing: Outgoing,
  ): Promise<Forwarded> =>
    new Promise((resolve) => {
      const timeoutMs = outgoing.timeoutMs ?? upstream.timeoutMs
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

      const timer = setTimeout(onSilence, timeoutMs)

      const settle = (
        outcome: Forwarded['outcome'],
        why: Pick<Forwarded, 'error' | 'givenUp'> = {},
      ): void => {
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
      const fail = (error: GatewayError): void =>
        settle(answer?.begun() === true ? 'cut' : 'failed', { error })

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
        // What has come from the upstream waits for a caller that takes none of it.
        if (answer?.begun() === true && (response.writableNeedDrain || response.writableEnded)) {
          settle('left', { givenUp: `the caller read too little for ${timeoutMs} ms` })
          return
        }
        if (claim?.holds === false) {
          fail(busy())
          return
        }
        failAt(`silent for ${timeoutMs} ms`)
        if (claim !== undefined && sockets.addressOf(claim.request) === undefined)
          fail(unreachable(upstream.name, `no connection within ${timeoutMs} ms`))
        else fail(silent(upstream.name, timeoutMs))
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
        fail(broken(upstream.name, error))
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
          onProgress: () => timer.refresh(),
          onBroken: onError,
          onUnfit: (error) => fail(broken(upstream.name, error)),
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
          onUnreachable: (failure) => fail(unreachable(upstream.name, failure)),
        }
        sockets.take(claim)
      }

      const send = (): void => {
        try {
          sendBy(request, response, outgoing, onRequest, onError)
        } catch (error) {
          fail(unreachable(upstream.name, error))
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

  return Object.assign(forward, {
    addresses: () => addresses.all.map(({ origin, downUntil }) => ({ address: origin, up: downUntil === 0 })),
    close: sockets.close,
  })
}

function ignore(): void {}
