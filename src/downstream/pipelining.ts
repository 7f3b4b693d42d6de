import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { messageOf, stopParsing } from '../runtime/node-http.ts'

/** Serves one request; calls `done` once, when its response is closed. */
export type Serve = (
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue: boolean,
  done: () => void,
) => void

/** While so many requests of a socket are pending, no more is read from it. */
const PAUSE_AT = 20
/** Maximum pending requests of a socket, which is closed beyond it. One 64 KiB read could hold thousands of minimal ones. */
const MAX_PENDING = 64
/**
 * Maximum requests of all sockets that wait for an earlier one of theirs. Parsing one takes some 20 us, before any other socket is
 * read. Beyond it, a socket with a pending request is closed if it sends another.
 */
const MAX_WAITING = 1000
const CLOSED_AT_ONCE = 10

interface Pipeline {
  pending: number
  /** What begins when those before it are done. */
  readonly waiting: (() => void)[]
  /** Ends the back-pressure, while there is any. */
  resume: (() => void) | undefined
  ends: boolean
}

/** Serves the requests of each socket in order; after an answer that ends it, none (RFC 9112 section 9.6). `onOverflow` is called for each socket that is closed. */
export function createPipelining(serve: Serve, onOverflow: (socket: Socket, max: number) => void) {
  const pipelines = new WeakMap<Socket, Pipeline>()
  let inFlight = 0
  let waiting = 0

  const closing: Socket[] = []

  function overflow(socket: Socket, max: number): void {
    stopParsing(socket)
    onOverflow(socket, max)
    if (closing.push(socket) === 1) setImmediate(closeSome)
  }

  /** Closes a few in each iteration of the event loop: at once, 900 sockets would hold up others for 80 ms more. */
  function closeSome(): void {
    for (const socket of closing.splice(0, CLOSED_AT_ONCE)) socket.destroy()
    if (closing.length > 0) setImmediate(closeSome)
  }

  function begin(socket: Socket): Pipeline {
    const pipeline = { pending: 0, waiting: [], resume: undefined, ends: false }
    pipelines.set(socket, pipeline)
    return pipeline
  }

  function add(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    const { socket } = request
    if (!socket.writable) return
    const pipeline = pipelines.get(socket) ?? begin(socket)
    if (pipeline.pending >= MAX_PENDING) return overflow(socket, MAX_PENDING)
    if (pipeline.pending > 0 && waiting >= MAX_WAITING) return overflow(socket, 1)
    const done = (): void => {
      pipeline.pending--
      inFlight--
      if (pipeline.resume !== undefined && pipeline.pending < PAUSE_AT) {
        pipeline.resume()
        pipeline.resume = undefined
      }
      pipeline.waiting.shift()?.()
    }
    pipeline.pending++
    inFlight++
    if (pipeline.pending >= PAUSE_AT) pipeline.resume ??= hold(socket)
    if (pipeline.pending === 1) serve(request, response, expectsContinue, done)
    else {
      waiting++
      pipeline.waiting.push(() => {
        waiting--
        if (socket.writable) serve(request, response, expectsContinue, done)
        else done()
      })
    }
  }

  /** Calls `end` once the pending requests of a socket are answered, unless an answer ended it: nothing can follow them. */
  function endAfterPending(socket: Socket, end: () => void): void {
    const pipeline = pipelines.get(socket)
    if (pipeline === undefined || pipeline.pending === 0) end()
    else if (!pipeline.ends) {
      pipeline.ends = true
      pipeline.waiting.push(() => {
        if (socket.writable) end()
        // What came behind it is not served, but must be counted out.
        pipeline.waiting.shift()?.()
      })
    }
  }

  return { add, endAfterPending, requests: (): number => inFlight }
}

/** Returns the response that a socket carries, if any. */
export const responseOf = (socket: Socket) => messageOf(socket) as ServerResponse | undefined

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
