import { mergedKey } from '../key.ts'
import { type Access, type Place, sharedUs } from '../quota.ts'
import type { Merge, Settlement, Settlements } from '../store.ts'
import { type Sending, spanOf } from './sending.ts'

/** The window of the access of a token, for merge.lua. */
const OF_TOKEN = -1

/** Returns the window of accesses for merge.lua, in microseconds; 0 without. */
function togetherOf(access: Access | undefined): number {
  if (access === undefined) return 0
  return access.isOfToken ? OF_TOKEN : access.windowMs * 1000
}

/**
 * Returns the keys and arguments of merge.lua: every instant on the server's clock is no earlier
 * than the call was made, and no later than the caller's wait assumes, if the clock is still known
 * as well.
 */
export function mergeOf(own: Merge, gateway: string, sending: Sending) {
  const { number, quota, calls, spreadMs } = own
  const { clocks, server, deadlineUs } = sending
  const { startUs, endUs, lengthUs } = spanOf(quota, sending)
  const accesses = new Set(calls.flatMap(({ access }) => access?.key ?? []))
  const keys = [mergedKey(quota.key, gateway, number), quota.key, ...accesses]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const together = togetherOf(calls.find((call) => call.access !== undefined)?.access)
  const instants = calls.flatMap(({ atUs, calls, access }) => {
    // While the clock is unknown, so is the deadline: the script does nothing.
    const earliest = clocks.at(server, atUs / 1000, 'earliest') ?? 0
    const latest = clocks.at(server, atUs / 1000 - spreadMs, 'latest') ?? 0
    const madeAt = Math.max(earliest, latest)
    return [madeAt, calls, access === undefined ? 0 : positions.get(access.key)!]
  })
  const until = Math.min(endUs - 1, deadlineUs)
  const args = [number, until, quota.limit, lengthUs, startUs, together, ...instants]
  return [keys.length, ...keys, ...args] as const
}

/** Time for which the mark of settlements is kept after the window of their calls, in milliseconds. */
const MARK_MS = 60_000

/**
 * Returns the keys and arguments of settle.lua. `mark` is the key with the number of this gateway's
 * last settlements, in the slot of the others.
 */
export function settlementOf({ number, all }: Settlements, mark: string, sending: Sending) {
  const { deadlineUs } = sending
  const keys = [...new Set([mark, ...all.map(({ quota }) => quota.key)])]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const longestMs = Math.max(...all.map(({ quota }) => quota.windowMs))
  const args = all.flatMap((settlement) => {
    const { quota, points } = settlement
    const { earliestUs, latestUs } = instantsOf(settlement, sending)
    return [positions.get(quota.key)!, earliestUs, latestUs, sharedUs(quota, earliestUs / 1000), points]
  })
  return [keys.length, ...keys, number, deadlineUs, longestMs + MARK_MS, ...args] as const
}

/** Returns the instants of the server's clock between which a call counts, in microseconds. */
function instantsOf({ chargedUs, spreadMs }: Settlement, { clocks, server }: Sending) {
  if (spreadMs === undefined) return { earliestUs: chargedUs, latestUs: chargedUs }
  // While the clock is unknown, so is the deadline: the script does nothing.
  const chargedMs = chargedUs / 1000
  const latest = clocks.at(server, chargedMs + spreadMs, 'latest') ?? 0
  return {
    earliestUs: clocks.at(server, chargedMs, 'earliest') ?? 0,
    // The call may have been merged when the clock was known less well.
    latestUs: Math.max(latest, clocks.latestEver(server, chargedMs) ?? 0),
  }
}

/** Returns the keys and arguments of renew.lua for leases and their lengths, in milliseconds. */
export function renewalOf(leases: readonly Place[], lengths: readonly number[], { deadlineUs }: Sending) {
  const keys = [...new Set(leases.map(({ quota }) => quota.key))]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const argsOf = ({ quota, id }: Place, i: number) => {
    const lengthUs = Math.ceil(lengths[i]! * 1000)
    return [positions.get(quota.key)!, id, lengthUs]
  }
  const args = leases.flatMap(argsOf)
  return [keys.length, ...keys, deadlineUs, ...args] as const
}
