import keySlot from 'cluster-key-slot'

export const SLOTS = 16_384
export const hashSlot: (key: string) => number = keySlot

/** Returns the hash tag of a key without its braces, or the whole key if it has no tag. */
export const hashTag = (key: string): string => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key

const tags: string[] = []
let tried = 0

/** Returns a hash tag of a slot. The tags are found by trial, which takes milliseconds once. */
export function tagOf(slot: number): string {
  while (tags[slot] === undefined) {
    const tag = String(tried++)
    tags[hashSlot(tag)] ??= tag
  }
  return tags[slot]
}
