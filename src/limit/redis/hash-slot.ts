/** CRC16 (XMODEM) as Redis Cluster uses it. */
const CRC16 = new Uint16Array(256)
for (let byte = 0; byte < 256; byte++) {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  CRC16[byte] = crc
}

/** Returns the hash tag of a key without its braces, by which a cluster keeps it; the whole key if it has none. */
export function hashTag(key: string): string {
  const open = key.indexOf('{')
  if (open === -1) return key
  const close = key.indexOf('}', open + 1)
  return close <= open + 1 ? key : key.slice(open + 1, close)
}

export const SLOTS = 16_384

/** Returns the Redis Cluster slot of an ASCII hash tag, 0 to 16383. */
export function hashSlot(tag: string): number {
  let crc = 0
  for (let i = 0; i < tag.length; i++) {
    crc = ((crc << 8) & 0xffff) ^ CRC16[((crc >> 8) ^ tag.charCodeAt(i)) & 0xff]!
  }
  return crc & 0x3fff
}

const tags: string[] = []
let tried = 0

/** Returns a hash tag of this slot, found by trial: the first costs milliseconds, and all are cached. */
export function tagOf(slot: number): string {
  while (tags[slot] === undefined) {
    const tag = String(tried++)
    tags[hashSlot(tag)] ??= tag
  }
  return tags[slot]
}
