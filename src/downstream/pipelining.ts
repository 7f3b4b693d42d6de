import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { endGently, lingerOnClose } from './graceful-close.ts'

/** Serves one request; resolves when its response is closed, and never rejects. */
export type Serve = (
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue?: boolean,
) => Promise<void>

/** While so many requests of a socket are pending, no more is read from it. */
const PAUSE_AT = 20
/** Most that may be pending: one read holds as many that have 131 bytes each, and could hold thousands that have hardly any. */
const MAX_PENDING = 500

interface Pipeline {
  pending: number
  last: Promise<void> | undefined
  /** Ends the back-pressure, while there is any. */
  resume: (() => void) | undefined
  ends: boolean
}

/** Serves the requests of each socket one after the other; after an answer that ends it, none (RFC 9112 section 9.6). */
export class Pipelining {
  readonly #serve: Serve
  readonly #onOverflow: (socket: Socket, max: number) => void
  readonly #pipelines = new WeakMap<Socket, Pipeline>()
  /** How many requests are under way. A set of their answers would keep each until a later garbage collection. */
  requests = 0

  /** `onOverflow` is called with a socket on which too many requests are pending, and closes it. */
  constructor(serve: Serve, onOverflow: (socket: Socket, max: number) => void) {
    this.#serve = serve
    this.#onOverflow = onOverflow
  }

  add(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    const { socket } = request
    if (!socket.writable) return
    let pipeline = this.#pipelines.get(socket)
    if (pipeline === undefined) {
      pipeline = { pending: 0, last: undefined, resume: undefined, ends: false }
      this.#pipelines.set(socket, pipeline)
    }
    if (pipeline.pending >= MAX_PENDING) {
      this.#onOverflow(socket, MAX_PENDING)
      return
    }
    const mine = pipeline
    const served =
      mine.pending === 0
        ? this.#serve(request, response, expectsContinue)
        : mine.last!.then(() => {
            if (!socket.writable) return undefined
            if (mine.ends && mine.pending === 1) response.shouldKeepAlive = false
            return this.#serve(request, response, expectsContinue)
          })
    mine.pending++
    this.requests++
    if (mine.pending >= PAUSE_AT) mine.resume ??= hold(socket)
    mine.last = served.then(() => {
      mine.pending--
      this.requests--
      if (mine.resume === undefined || mine.pending >= PAUSE_AT) return
      mine.resume()
      mine.resume = undefined
    })
  }

  /** Calls back when all requests of a socket so far are answered: at once if none is pending. */
  afterPending(socket: Socket, act: () => void): void {
    const pipeline = this.#pipelines.get(socket)
    if (pipeline === undefined || pipeline.pending === 0) act()
    else void pipeline.last!.then(act)
  }

  /** Answers the pending requests of a socket, and then ends it: nothing can follow. */
  endAfterPending(socket: Socket): void {
    const pipeline = this.#pipelines.get(socket)!
    if (pipeline.ends) return
    pipeline.ends = true
    lingerOnClose(socket)
    const response = responseOf(socket)
    if (response !== undefined && pipeline.pending === 1) response.shouldKeepAlive = false
    void pipeline.last!.then(() => {
      if (socket.writable) endGently(socket)
    })
  }
}

/** The response that is under way on a socket, if any. */
export function responseOf(socket: Socket): ServerResponse | undefined {
  return (socket as Socket & { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined
}

/** Stops reading from a socket, which Node resumes after each whole request and each answer that has drained; returns the end of it. */
function hold(socket: Socket): () => void {
  const pause = (): void => void socket.pause()
  socket.on('resume', pause)
  pause()
  return () => {
    socket.off('resume', pause)
    socket.resume()
  }
}
