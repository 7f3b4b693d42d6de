import type { LoggedCall } from './logged-call.ts'
import { createHeap } from './heap.ts'

/** Takes the calls of several logs by the time of their lines, of which each log is nearly in order already. */
export async function merge(
  logs: readonly AsyncIterator<readonly LoggedCall[]>[],
  take: (call: LoggedCall) => void,
): Promise<void> {
  const heads = createHeap<Head>()
  for (const log of logs) await advance({ log, calls: [], next: 0 })

  async function advance(head: Head): Promise<void> {
    while (head.next === head.calls.length) {
      const { value, done } = await head.log.next()
      if (done === true) return
      head.calls = value
      head.next = 0
    }
    heads.push(head.calls[head.next]!.loggedAt, head)
  }

  while (heads.size > 0) {
    const head = heads.pop()
    const { calls } = head
    do take(calls[head.next++]!)
    while (head.next < calls.length && calls[head.next]!.loggedAt <= heads.lowest)
    await advance(head)
  }
}

interface Head {
  readonly log: AsyncIterator<readonly LoggedCall[]>
  calls: readonly LoggedCall[]
  next: number
}

/** Longest that a decision may precede its line to be put in order, and most calls that wait for that. */
export interface Patience {
  readonly longestMs: number
  readonly mostCalls: number
}

/** Calls in the order of their decisions. */
export interface InOrder {
  take(call: LoggedCall): void
  /** No more will come. */
  end(): void
  /** How many came when later ones had been passed on, and by how much at most. */
  late(): { readonly calls: number; readonly byMs: number }
}

const PATIENCE: Patience = { longestMs: 60_000, mostCalls: 400_000 }

/**
 * Puts calls, which come as their requests ended, into the order in which they were decided, and passes each on with that
 * instant; one that comes too late for that is taken to be decided when the last one was.
 */
export function createOrder(
  pass: (call: LoggedCall, nowMs: number) => void,
  { longestMs, mostCalls }: Patience = PATIENCE,
): InOrder {
  const waiting = createHeap<LoggedCall>()
  let newest = -Infinity
  let now = -Infinity
  let late = 0
  let lateMs = 0

  function passOne(): void {
    now = Math.max(now, waiting.lowest)
    pass(waiting.pop(), now)
  }

  return {
    take(call) {
      if (call.decidedAt < now) {
        late++
        lateMs = Math.max(lateMs, now - call.decidedAt)
      }
      waiting.push(call.decidedAt, call)
      newest = Math.max(newest, call.loggedAt)
      while (waiting.lowest < newest - longestMs || waiting.size > mostCalls) passOne()
    },
    end() {
      while (waiting.size > 0) passOne()
    },
    late: () => ({ calls: late, byMs: lateMs }),
  }
}
