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

/**
 * Serves the requests of each socket one after the other; after an answer that ends it, none (RFC 9112 section 9.6). `onOverflow`
 * is called with a socket on which too many are pending, and closes it.
 */
export function createPipelining(serve: Serve, onOverflow: (socket: Socket, max: number) => void) {
  const pipelines = new WeakMap<Socket, Pipeline>()
  /** A set of the responses would keep each until a later garbage collection. */
  let underWay = 0

  function add(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    const { socket } = request
    if (!socket.writable) return
    const pipeline = pipelines.get(socket) ?? {
      pending: 0,
      last: undefined,
      resume: undefined,
      ends: false,
    }
    if (pipeline.pending >= MAX_PENDING) {
      onOverflow(socket, MAX_PENDING)
      return
    }
    if (pipeline.last === undefined) pipelines.set(socket, pipeline)
    const served =
      pipeline.pending === 0
        ? serve(request, response, expectsContinue)
        : pipeline.last!.then(() => {
            if (!socket.writable) return undefined
            if (pipeline.ends && pipeline.pending === 1) response.shouldKeepAlive = false
            return serve(request, response, expectsContinue)
          })
    pipeline.pending++
    underWay++
    if (pipeline.pending >= PAUSE_AT) pipeline.resume ??= hold(socket)
    pipeline.last = served.then(() => {
      pipeline.pending--
      underWay--
      if (pipeline.resume === undefined || pipeline.pending >= PAUSE_AT) return
      pipeline.resume()
      pipeline.resume = undefined
    })
  }

  /** Calls back when all requests of a socket so far are answered: at once if none is pending. */
  function afterPending(socket: Socket, act: () => void): void {
    const pipeline = pipelines.get(socket)
    if (pipeline === undefined || pipeline.pending === 0) act()
    else void pipeline.last!.then(act)
  }

  /** Answers the pending requests of a socket, and then ends it: nothing can follow. */
  function endAfterPending(socket: Socket): void {
    const pipeline = pipelines.get(socket)!
    if (pipeline.ends) return
    pipeline.ends = true
    lingerOnClose(socket)
    const response = responseOf(socket)
    if (response !== undefined && pipeline.pending === 1) response.shouldKeepAlive = false
    void pipeline.last!.then(() => {
      if (socket.writable) endGently(socket)
    })
  }

  /** Returns how many requests are under way. */
  const requests = (): number => underWay

  return { add, afterPending, endAfterPending, requests }
}

export type Pipelining = ReturnType<typeof createPipelining>

/** The response that is under way on a socket, if any. */
export function responseOf(socket: Socket): ServerResponse | undefined {
  return (socket as Socket & { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined
}

/** Stops reading from a socket until the returned function is called; Node would resume it after each request and drained answer. */
function hold(socket: Socket): () => void {
  const pause = (): void => void socket.pause()
  socket.on('resume', pause)
  pause()
  return () => {
    socket.off('resume', pause)
    socket.resume()
  }
}
