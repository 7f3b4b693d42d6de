import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

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

/** Serves the requests of each socket in order; after an answer that ends it, none (RFC 9112 section 9.6). `onOverflow` closes it. */
export function createPipelining(serve: Serve, onOverflow: (socket: Socket, max: number) => void) {
  const pipelines = new WeakMap<Socket, Pipeline>()
  /** A set of the responses would keep each until a later garbage collection. */
  let underWay = 0

  function add(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    const { socket } = request
    if (!socket.writable) return
    let pipeline = pipelines.get(socket)
    if (pipeline === undefined) {
      pipeline = { pending: 0, last: undefined, resume: undefined, ends: false }
      pipelines.set(socket, pipeline)
    } else if (pipeline.pending >= MAX_PENDING) return onOverflow(socket, MAX_PENDING)
    const served =
      pipeline.pending === 0
        ? serve(request, response, expectsContinue)
        : pipeline.last!.then(() => (socket.writable ? serve(request, response, expectsContinue) : undefined))
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

  /** Calls `end` once the pending requests of a socket are answered, unless an answer ended it: nothing can follow them. */
  function endAfterPending(socket: Socket, end: () => void): void {
    const pipeline = pipelines.get(socket)
    if (pipeline === undefined || pipeline.pending === 0) end()
    else if (!pipeline.ends) {
      pipeline.ends = true
      void pipeline.last!.then(() => {
        if (socket.writable) end()
      })
    }
  }

  return { add, endAfterPending, requests: (): number => underWay }
}

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
