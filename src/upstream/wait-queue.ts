import { createSlots } from '../runtime/slots.ts'
import type { UpstreamRequest } from './request.ts'

/**
 * Queue slots per socket. With 256 sockets, one client may queue 1024 requests, more than a limit
 * of 1000 admits at once.
 */
const WAITING_PER_SOCKET = 8

/** Creates the queue of the requests that wait for one of `max` sockets. One caller has at most half of it. */
export function createWaitQueue(max: number) {
  const queue: UpstreamRequest[] = []
  const slots = createSlots(WAITING_PER_SOCKET * max, WAITING_PER_SOCKET * Math.ceil(max / 2))

  function removeAt(index: number): void {
    const [request] = queue.splice(index, 1)
    slots.release(request!.outgoing.caller)
  }

  return {
    length: (): number => queue.length,

    /** Adds a request; returns false if the queue, or its caller's part of it, is full. */
    add(request: UpstreamRequest): boolean {
      const { caller } = request.outgoing
      if (!slots.isFree(caller)) return false
      slots.take(caller)
      queue.push(request)
      request.stage = 'slot'
      return true
    },

    /** Removes a request that waits no longer. */
    remove: (request: UpstreamRequest): void => removeAt(queue.indexOf(request)),

    /** Calls `begin` for requests in their order until `isFull`, and removes those for which it returns true. */
    serve(begin: (request: UpstreamRequest) => boolean, isFull: () => boolean): void {
      for (let i = 0; i < queue.length && !isFull();) {
        if (begin(queue[i]!)) removeAt(i)
        else i++
      }
    },
  }
}
