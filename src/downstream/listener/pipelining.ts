import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { stopParsing } from '../../runtime/node-http.ts'

/** Serves one request; calls `done` once, when its response is closed. */
export type Serve = (response: ServerResponse, expectsContinue: boolean, done: () => void) => void

/** Pending requests of a socket at which reading from it pauses. */
const PAUSE_AT = 20
/**
 * Maximum pending requests of a socket, which is closed beyond it. One 64 KiB read could hold
 * thousands of minimal ones.
 */
const MAX_PENDING = 64
/**
 * Maximum waiting requests of all sockets; beyond, pipelining sockets are closed. Parsing one takes
 * 20 us, and delays other sockets.
 */
const MAX_WAITING = 1000
const CLOSED_AT_ONCE = 10

interface Pipeline {
  pending: number
  /** Actions to run one by one, each after the request before it. */
  readonly waiting: (() => void)[]
  /** Resumes reading; undefined unless it is paused. */
  resume: (() => void) | undefined
  /** Ends a request, and begins the next one. */
  readonly done: () => void
}

/** Serves each socket's requests in order, and none after a response that closes it (RFC 9112 section 9.6). */
export function createPipelining(onOverflow: (socket: Socket, max: number) => void) {
  const pipelines = new WeakMap<Socket, Pipeline>()
  const overflowing: Socket[] = []
  let inFlight = 0
  let waiting = 0

  function overflow(socket: Socket, max: number): void {
    stopParsing(socket)
    onOverflow(socket, max)
    if (overflowing.push(socket) === 1) setImmediate(closeSome)
  }

  /** Closes a few in each event-loop iteration: closing 900 at once would delay other sockets by 80 ms. */
  function closeSome(): void {
    for (const socket of overflowing.splice(0, CLOSED_AT_ONCE)) socket.destroy()
    if (overflowing.length > 0) setImmediate(closeSome)
  }

  function open(socket: Socket): Pipeline {
    function done(): void {
      pipeline.pending--
      inFlight--
      if (pipeline.resume !== undefined && pipeline.pending < PAUSE_AT) {
        pipeline.resume()
        pipeline.resume = undefined
      }
      pipeline.waiting.shift()?.()
    }
    const pipeline: Pipeline = { pending: 0, waiting: [], resume: undefined, done }
    pipelines.set(socket, pipeline)
    return pipeline
  }

  /**
   * Calls `run` after the responses to the pending requests of a socket, unless one of them closes
   * it. `run` calls `done` once, when its response is closed.
   */
  function add(socket: Socket, run: (done: () => void) => void): void {
    if (!socket.writable) return
    const pipeline = pipelines.get(socket) ?? open(socket)
    const { done } = pipeline
    if (pipeline.pending >= MAX_PENDING) return overflow(socket, MAX_PENDING)
    if (pipeline.pending > 0 && waiting >= MAX_WAITING) return overflow(socket, 1)
    pipeline.pending++
    inFlight++
    if (pipeline.pending >= PAUSE_AT) pipeline.resume ??= pause(socket)
    if (pipeline.pending === 1) return run(done)
    waiting++
    pipeline.waiting.push(() => {
      waiting--
      if (socket.writable) run(done)
      else done()
    })
  }

  return { add, requests: (): number => inFlight }
}

/**
 * Pauses reading until the returned function is called; Node would resume it after each request and
 * drained response.
 */
function pause(socket: Socket): () => void {
  const pauseAgain = (): void => void socket.pause()
  socket.on('resume', pauseAgain)
  socket.pause()
  return () => {
    socket.off('resume', pauseAgain)
    socket.resume()
  }
}
