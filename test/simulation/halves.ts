import { hashSlot } from '../../src/limit/redis/hash-slot.ts'

const HALF = 8192

/** Returns the half of a cluster's slots that a key is in. */
export const halfOf = (key: string): 0 | 1 => (hashSlot(key) < HALF ? 0 : 1)

/** Returns a hash tag of a half, a number of at least `from`. */
export function hashTagOf(half: 0 | 1, from = 0): string {
  let tag = from
  while (halfOf(`{${tag}}`) !== half) tag++
  return String(tag)
}
