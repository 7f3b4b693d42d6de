import type { Clock } from '../../runtime/clock.ts'
import { type Lease, type Leases, renewalMs, renewed } from '../leases.ts'
import type { Place, Quota } from '../quota.ts'
import type { RemoteStore } from '../store.ts'

/** Maximum leases of a command, which keep Redis for about 1 ms. */
const MAX_LEASES = 500

/** A lease to be ended in the store, and the local instant, in milliseconds, at which that ends it itself. */
interface EndedLease extends Place {
  readonly goneAtMs: number
}

/** Creates the background work that ends leases in the store, and renews those of long calls. */
export function createLeaseChanges(
  leases: Leases,
  store: Pick<RemoteStore, 'endLeases' | 'renewLeases' | 'slot'>,
  isUp: (quota: Quota) => boolean,
  clock: Clock,
) {
  const ended = new Set<EndedLease>()
  let isGathering = false

  /** Groups the leases of servers that are up, up to `MAX_LEASES` each. */
  function group<Each extends Place>(places: Iterable<Each>, keyOf: (key: string) => unknown) {
    const last = new Map<unknown, Each[]>()
    const groups: Each[][] = []
    for (const lease of places) {
      if (!isUp(lease.quota)) continue
      const key = keyOf(lease.quota.key)
      const found = last.get(key)
      if (found === undefined || found.length === MAX_LEASES) {
        const next = [lease]
        last.set(key, next)
        groups.push(next)
      } else found.push(lease)
    }
    return groups
  }

  /** Ends a lease that the store may have, together with the others of this iteration of the event loop. */
  function end({ quota, id }: Place): void {
    ended.add({ quota, id, goneAtMs: clock.now() + quota.windowMs })
    if (isGathering) return
    isGathering = true
    clock.soon(() => void sendEnded())
  }

  async function send(group: readonly EndedLease[]): Promise<void> {
    for (const lease of group) ended.delete(lease)
    await store.endLeases(group).catch(() => {
      // The next turn sends them again.
      for (const lease of group) ended.add(lease)
    })
  }

  async function sendEnded(): Promise<void> {
    isGathering = false
    const now = clock.now()
    for (const lease of ended) if (lease.goneAtMs <= now) ended.delete(lease)
    await Promise.all(group(ended, String).map(send))
  }

  async function renew(group: readonly Lease[]): Promise<void> {
    const sentAt = clock.now()
    for (const lease of group) lease.mayBeStored = true
    const lengths = group.map((lease) => renewalMs(lease, sentAt))
    const isDone = await store.renewLeases(group, lengths).then(
      () => true,
      () => false,
    )
    if (isDone) for (const lease of group) renewed(lease, sentAt)
    // A renewal that was sent twice may have come after the end of its lease.
    for (const lease of group) if (!leases.has(lease)) end(lease)
  }

  let turn: Promise<unknown> | undefined
  const renewDue = () => group(leases.dueForRenewal(clock.now()), store.slot).map(renew)
  const work = () => Promise.all([sendEnded(), ...renewDue()])

  return {
    end,
    hasEnded: (): boolean => ended.size > 0,
    /** Sends again what had no answer, and renews the leases that the store will not have for long. */
    turn: (): Promise<unknown> => (turn ??= work().finally(() => (turn = undefined))),
  }
}
