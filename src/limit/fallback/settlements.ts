import type { Clock } from '../../runtime/clock.ts'
import type { Quota } from '../quota.ts'
import type { RemoteStore, Settlement, Settlements } from '../store.ts'

/** Maximum settlements of a message, which keep Redis for about 1 ms. */
const MAX_SENT = 100
/**
 * Maximum settlements that wait: those of calls in progress when Redis fails. Beyond, calls stay
 * charged what they reserved.
 */
const MAX_WAITING = 100_000

/** A settlement that the store does not have, or may not have. */
interface Waiting {
  readonly settlement: Settlement
  /** The local instant, in milliseconds, from which its call is in no window. */
  readonly goneAtMs: number
  readonly onEnd: () => void
}

/** The settlements of a slot. Only one message is under way: the store then needs to know only the last number. */
interface SlotQueue {
  readonly waiting: Waiting[]
  /** The settlements that were sent last, and their message: without an answer they are sent again as they are. */
  sent: { readonly waiting: readonly Waiting[]; readonly message: Settlements } | undefined
  isUnderWay: boolean
}

/** The store, and what this gateway knows of its keys. */
interface SettlementOptions {
  readonly store: Pick<RemoteStore, 'settle' | 'slot'>
  readonly isUp: (quota: Quota) => boolean
  /** True while the store may not have calls of a key yet that it was sent. */
  readonly isMerging: (key: string) => boolean
}

/**
 * Creates the background work that settles calls in the store, together with others: at the end of an
 * iteration of the event loop, or after an outage.
 */
export function createSettlements(clock: Clock, { store, isUp, isMerging }: SettlementOptions) {
  const queues = new Map<number, SlotQueue>()
  let lastNumber = 0
  let waitingCount = 0
  let isGathering = false

  /** True if the call of a settlement is in no window any more. */
  const isGone = ({ goneAtMs }: Waiting): boolean => goneAtMs <= clock.now()

  function queueOf(slot: number): SlotQueue {
    const queue = queues.get(slot) ?? { waiting: [], sent: undefined, isUnderWay: false }
    queues.set(slot, queue)
    return queue
  }

  function end(some: readonly Waiting[]): void {
    waitingCount -= some.length
    for (const { onEnd } of some) onEnd()
  }

  /** Takes the next settlements that can be sent out of a queue, and drops those whose calls are in no window. */
  function takeNext({ waiting }: SlotQueue): readonly Waiting[] {
    const next: Waiting[] = []
    const gone: Waiting[] = []
    const later: Waiting[] = []
    let taken = 0
    while (taken < waiting.length && next.length < MAX_SENT) {
      const one = waiting[taken++]!
      if (isGone(one)) gone.push(one)
      else if (isReady(one.settlement)) next.push(one)
      else later.push(one)
    }
    waiting.splice(0, taken, ...later)
    end(gone)
    return next
  }

  /** True if the store answers, and has the call of a settlement. */
  const isReady = ({ quota, spreadMs }: Settlement): boolean =>
    isUp(quota) && (spreadMs === undefined || !isMerging(quota.key))

  /** Returns what is to be sent now: the last message if it had no answer, or the next; undefined if there is none. */
  function messageOf(queue: SlotQueue): Settlements | undefined {
    if (queue.sent?.waiting.every(isGone)) finish(queue)
    if (queue.sent === undefined) {
      const next = takeNext(queue)
      if (next.length === 0) return undefined
      const message = { number: ++lastNumber, all: next.map(({ settlement }) => settlement) }
      queue.sent = { waiting: next, message }
    }
    const { message } = queue.sent
    return isUp(message.all[0]!.quota) ? message : undefined
  }

  /** Sends the messages of a slot one after the other, until none is left or one has no answer. */
  async function send(slot: number, queue: SlotQueue): Promise<void> {
    for (;;) {
      const message = queue.isUnderWay ? undefined : messageOf(queue)
      if (message === undefined) break
      queue.isUnderWay = true
      const isDone = await store.settle(message).then(
        () => true,
        () => false,
      )
      queue.isUnderWay = false
      // The next turn sends it again.
      if (!isDone) break
      finish(queue)
    }
    if (queue.waiting.length === 0 && queue.sent === undefined) queues.delete(slot)
  }

  function finish(queue: SlotQueue): void {
    const { waiting } = queue.sent!
    queue.sent = undefined
    end(waiting)
  }

  async function sendAll(): Promise<void> {
    isGathering = false
    await Promise.all(Array.from(queues, ([slot, queue]) => send(slot, queue)))
  }

  return {
    /** Has the store settle calls. Resolves when it has, or when none of the calls is in a window any more. */
    add(settlements: readonly Settlement[]): Promise<void> {
      const room = Math.max(0, MAX_WAITING - waitingCount)
      const accepted = settlements.slice(0, room)
      waitingCount += accepted.length
      if (!isGathering) {
        isGathering = true
        clock.soon(() => void sendAll())
      }
      const ended = accepted.map((settlement) => {
        const { key, windowMs } = settlement.quota
        // Later than a window after the call.
        const goneAtMs = clock.now() + windowMs
        return new Promise<void>((onEnd) => {
          queueOf(store.slot(key)).waiting.push({ settlement, goneAtMs, onEnd })
        })
      })
      return Promise.all(ended).then(() => {})
    },
    hasWaiting: (): boolean => waitingCount > 0,
    /** Sends what waits, and again what had no answer: a turn of the background. */
    turn: sendAll,
    /** Forgets the settlements of keys, whose calls were reset. */
    reset(matches: (key: string) => boolean): void {
      for (const { waiting } of queues.values()) {
        const all = waiting.splice(0)
        const isForgotten = ({ settlement }: Waiting): boolean => matches(settlement.quota.key)
        waiting.push(...all.filter((one) => !isForgotten(one)))
        end(all.filter(isForgotten))
      }
    },
  }
}
