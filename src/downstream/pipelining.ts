import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { endGently, lingerOnClose } from './graceful-close.ts'

/** Serves one request; resolves when its response is closed, and never rejects. */
export type Serve = (
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue?: boolean,
) => Promise<void>

/** The requests of each socket, served one after the other; after an answer that ends it, none (RFC 9112 section 9.6). */
export interface Turns {
  /** How many requests are under way: their answers in a set would each outlive it by a collection of garbage. */
  readonly requests: number
  take(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void
  /** Calls back when all that came on a socket so far is answered: at once where nothing waits. */
  behind(socket: Socket, act: () => void): void
  /** Nothing can follow: what came on a socket so far is answered, and then it ends. */
  endAfter(socket: Socket): void
}

/** While so many requests of a socket wait, no more is read from it. */
const MANY = 20
/** Most that may wait: one read holds as many that have 131 bytes each, and could hold thousands that have hardly any. */
const MOST_WAITING = 500

interface Turn {
  waiting: number
  last: Promise<void> | undefined
  /** Stops reading, as long as that is stopped. */
  held: (() => void) | undefined
  ends: boolean
}

/** Serves what it is given in turn; `beyond` is told of a socket on which too many wait, which is to be closed. */
export function createTurns(serve: Serve, beyond: (socket: Socket, most: number) => void): Turns {
  const turns = new WeakMap<Socket, Turn>()
  let requests = 0

  return {
    get requests() {
      return requests
    },
    take(request, response, expectsContinue) {
      const { socket } = request
      if (!socket.writable) return
      let turn = turns.get(socket)
      if (turn === undefined)
        turns.set(socket, (turn = { waiting: 0, last: undefined, held: undefined, ends: false }))
      if (turn.waiting >= MOST_WAITING) {
        beyond(socket, MOST_WAITING)
        return
      }
      const mine = turn
      const served =
        mine.waiting === 0
          ? serve(request, response, expectsContinue)
          : mine.last!.then(() => {
              if (!socket.writable) return undefined
              if (mine.ends && mine.waiting === 1) response.shouldKeepAlive = false
              return serve(request, response, expectsContinue)
            })
      mine.waiting++
      requests++
      if (mine.waiting >= MANY && mine.held === undefined) mine.held = hold(socket)
      mine.last = served.then(() => {
        mine.waiting--
        requests--
        if (mine.held === undefined || mine.waiting >= MANY) return
        release(socket, mine.held)
        mine.held = undefined
      })
    },
    behind(socket, act) {
      const turn = turns.get(socket)
      if (turn === undefined || turn.waiting === 0) act()
      else void turn.last!.then(act)
    },
    endAfter(socket) {
      const turn = turns.get(socket)!
      if (turn.ends) return
      turn.ends = true
      lingerOnClose(socket)
      const response = underWay(socket)
      if (response !== undefined && turn.waiting === 1) response.shouldKeepAlive = false
      void turn.last!.then(() => {
        if (socket.writable) endGently(socket)
      })
    },
  }
}

/** The answer that a socket waits for or is being given, if any. */
export function underWay(socket: Socket): ServerResponse | undefined {
  return (socket as Socket & { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined
}

/** Reads no more from a socket. Node itself reads on after each whole request and each answer that has drained. */
function hold(socket: Socket): () => void {
  const stop = (): void => void socket.pause()
  socket.on('resume', stop)
  stop()
  return stop
}

function release(socket: Socket, stop: () => void): void {
  socket.off('resume', stop)
  socket.resume()
}
