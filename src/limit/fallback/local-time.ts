import { type Clock, epochOf } from '../../runtime/clock.ts'
import { type Frame, frameAt } from '../memory/call-log.ts'
import type { KeyedWindow } from '../quota.ts'
import type { RemoteStore } from '../store.ts'

export type LocalTime = ReturnType<typeof createLocalTime>

/** Creates the time of this process, in microseconds of its clock, and what it is at the servers of keys. */
export function createLocalTime(clock: Clock, store: Pick<RemoteStore, 'dateAt'>) {
  const epochMs = epochOf(clock)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  /** Returns the time of a key's server, in epoch milliseconds; of this machine if that is unknown. */
  const dateMs = (key: string, atUs = nowUs()): number =>
    store.dateAt(key, atUs / 1000) ?? epochMs(atUs / 1000)
  return {
    epochMs,
    nowUs,
    dateMs,
    /** Returns a window at a local instant, by the clock of its key's server for calendar periods. */
    frameOf: (limit: number, counted: KeyedWindow, atUs: number): Frame =>
      frameAt(limit, counted, atUs, counted.calendar === undefined ? 0 : dateMs(counted.key, atUs)),
  }
}
