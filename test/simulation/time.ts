import { setImmediate } from 'node:timers/promises'
import type { Clock } from '../../src/runtime/clock.ts'

/** The order in which an iteration of the event loop runs what is due: timers, input, immediates. */
const PHASES = { timer: 0, input: 1, immediate: 2 } as const
type Phase = keyof typeof PHASES

interface Event {
  atMs: number
  readonly phase: number
  readonly number: number
  /** Undefined if it was cancelled. */
  run: (() => void) | undefined
  /** The process whose event loop runs it, and may be late. */
  readonly loop: Loop | undefined
}

export type World = ReturnType<typeof createWorld>
export type Loop = ReturnType<World['createLoop']>

export const START_MS = 1_750_000_000_000

/** Creates virtual time, which begins `shiftMs` later than the usual instant: `run` runs all events in order, each with the promises that it settles. Times are milliseconds from 0. */
export function createWorld(shiftMs = 0) {
  const heap: Event[] = []
  let nowMs = 0
  let number = 0
  let loops = 0

  const isBefore = (a: Event, b: Event): boolean =>
    a.atMs !== b.atMs ? a.atMs < b.atMs : a.phase !== b.phase ? a.phase < b.phase : a.number < b.number

  function push(event: Event): void {
    let at = heap.push(event) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!isBefore(event, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = event
  }

  function pop(): Event {
    const first = heap[0]!
    const last = heap.pop()!
    if (heap.length === 0) return first
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++
      if (!isBefore(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
    return first
  }

  /** Runs at an instant, or as soon as the loop is free after it. Returns the event, which can be cancelled. */
  function at(atMs: number, run: () => void, loop?: Loop, phase: Phase = 'input'): Event {
    const event = { atMs: Math.max(atMs, nowMs), phase: PHASES[phase], number: number++, run, loop }
    push(event)
    return event
  }

  /** Creates the event loop of a process, whose wall clock differs from the world's. */
  function createLoop(aheadMs = 0) {
    const loop = {
      name: `process ${loops++}`,
      busyUntilMs: 0,
      isStopped: false,
      /** Suspends the process. */
      stall: (ms: number): void => void (loop.busyUntilMs = Math.max(loop.busyUntilMs, nowMs + ms)),
      /** Ends the process: none of its events run any more. */
      stop: (): void => void (loop.isStopped = true),
      clock: {} as Clock,
    }
    loop.clock = {
      now: () => nowMs,
      date: () => START_MS + shiftMs + nowMs + aheadMs,
      after(ms, run) {
        const event = at(nowMs + Math.max(1, ms), run, loop, 'timer')
        return () => void (event.run = undefined)
      },
      every(ms, run) {
        let cancel = (): void => {}
        const next = (): void => {
          cancel = loop.clock.after(ms, () => {
            next()
            run()
          })
        }
        next()
        return () => cancel()
      },
      soon: (run) => void at(nowMs, run, loop, 'immediate'),
    }
    return loop
  }

  return {
    now: (): number => nowMs,
    at,
    createLoop,
    /** Runs all events until an instant. */
    async run(untilMs: number): Promise<void> {
      while (heap.length > 0 && heap[0]!.atMs <= untilMs) {
        const event = pop()
        const { run, loop } = event
        if (run === undefined || loop?.isStopped === true) continue
        if (loop !== undefined && loop.busyUntilMs > event.atMs) {
          event.atMs = loop.busyUntilMs
          push(event)
          continue
        }
        nowMs = event.atMs
        run()
        // Settles all promises that the event has settled.
        await setImmediate()
      }
      nowMs = untilMs
    },
  }
}

export const serverMicroseconds = (worldMs: number, aheadMs: number): number =>
  Math.round((START_MS + worldMs + aheadMs) * 1000)
