import type { Clock } from '../../runtime/clock.ts'
import type { Lease, Leases } from '../leases.ts'
import type { Quota } from '../quota.ts'
import type { LeaseChange } from '../redis/protocol.ts'
import type { RemoteStore } from './breakers.ts'

/** Maximum leases of a script call, which keep Redis for about 1 ms. */
const MAX_CHANGES = 500

/** Creates the background work that ends leases in the store, and renews those of long calls. */
export function createLeaseChanges(
  leases: Leases,
  store: Pick<RemoteStore, 'changeLeases' | 'slot'>,
  isUp: (quota: Quota) => boolean,
  clock: Clock,
) {
  /** The ended leases that are to be sent, and the local instants, in milliseconds, at which the store ends them itself. */
  const ended = new Map<Lease, number>()
  let isGathering = false

  async function send(changes: readonly LeaseChange[]): Promise<void> {
    const sentAt = clock.now()
    const isDone = await store.changeLeases(changes).then(
      () => true,
      () => false,
    )
    for (const { lease, goneAtMs } of changes) {
      if (goneAtMs === undefined && isDone) lease.storedUntilMs = sentAt + lease.quota.windowMs
      // The next turn sends it again.
      else if (goneAtMs !== undefined && !isDone) ended.set(lease, goneAtMs)
    }
  }

  /** Sends the ended leases, and others to be renewed, to the servers that are up. */
  async function sendAll(renewed: readonly Lease[]): Promise<void> {
    isGathering = false
    const now = clock.now()
    const batches = new Map<number, LeaseChange[]>()
    function add(change: LeaseChange): void {
      const { lease, goneAtMs } = change
      if (!isUp(lease.quota)) return
      const slot = store.slot(lease.quota.key)
      const batch = batches.get(slot) ?? []
      batches.set(slot, batch)
      if (batch.length === MAX_CHANGES) return
      batch.push(change)
      lease.mayBeStored = true
      if (goneAtMs !== undefined) ended.delete(lease)
    }
    for (const [lease, goneAtMs] of ended) {
      if (goneAtMs > now) add({ lease, goneAtMs })
      else ended.delete(lease)
    }
    for (const lease of renewed) add({ lease, goneAtMs: undefined })
    await Promise.all(Array.from(batches.values(), send))
  }

  /** Ends a lease that the store may have, together with the others of this iteration of the event loop. */
  function end(lease: Lease): void {
    ended.set(lease, clock.now() + lease.quota.windowMs)
    if (isGathering) return
    isGathering = true
    clock.soon(() => void sendAll([]))
  }

  return {
    end,
    /** Ends the leases that the store may have added without an answer. */
    endAll(quotas: readonly Quota[], id: string): void {
      for (const quota of quotas)
        if (quota.isConcurrent) end({ quota, id, storedUntilMs: -Infinity, mayBeStored: true })
    },
    hasEnded: (): boolean => ended.size > 0,
    /** Sends again what had no answer, and renews the leases that the store will not have for long. */
    turn: (): Promise<void> => sendAll(leases.lapsing(clock.now())),
  }
}
