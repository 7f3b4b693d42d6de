/**
 * Callers without slots that are remembered: a Map whose entries come and go makes garbage in the
 * old space; `npm run bench -- --rows garbage`.
 */
const MAX_REMEMBERED = 1000

/** Counts the slots in use, of all callers and of each. */
export function createSlots(max: number, maxEach: number) {
  const held = new Map<string, number>()
  let taken = 0
  const of = (caller: string): number => held.get(caller) ?? 0
  function take(caller: string, count = 1): void {
    taken += count
    held.set(caller, of(caller) + count)
    if (held.size <= MAX_REMEMBERED + taken) return
    for (const [one, slots] of held) if (slots === 0) held.delete(one)
  }
  return {
    isFull: (): boolean => taken >= max,
    isFree: (caller: string, count = 1) => taken + count <= max && of(caller) + count <= maxEach,
    of,
    take,
    release: (caller: string, count = 1): void => take(caller, -count),
  }
}
