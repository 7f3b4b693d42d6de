/** Bytes of the end of a body that are looked at. */
export const MAX_TAIL = 64 * 1024
/**
 * Maximum chunks that are held. More are joined: 65,536 chunks of one byte each would take
 * megabytes.
 */
const MAX_CHUNKS = 1024

/** Holds the chunks of a body that its last 64 kB are in, by reference. */
export class Tail {
  /** Bytes of the whole body. */
  total = 0
  #chunks: Buffer[] = []
  /** Index of the first chunk that is held. */
  #first = 0
  /** Bytes of the chunks that are held. */
  #held = 0

  push(chunk: Buffer): void {
    this.total += chunk.length
    this.#held += chunk.length
    if (this.#chunks.push(chunk) - this.#first > MAX_CHUNKS) this.#join()
    while (this.#held - this.#chunks[this.#first]!.length >= MAX_TAIL) {
      this.#held -= this.#chunks[this.#first]!.length
      this.#chunks[this.#first++] = EMPTY
    }
    // Each chunk is moved about once.
    if (this.#first >= MAX_CHUNKS) this.#drop()
  }

  /** Returns the last bytes of the last chunk, at most `max`, without a copy. */
  newest(max: number): Buffer {
    const newest = this.#chunks.at(-1) ?? EMPTY
    return newest.length > max ? newest.subarray(newest.length - max) : newest
  }

  /** Returns the last bytes of the body, at most `max` and `MAX_TAIL`; a copy if they are in several chunks. */
  last(max: number): Buffer {
    const length = Math.min(max, MAX_TAIL, this.#held)
    const newest = this.newest(length)
    if (newest.length === length) return newest
    const bytes = Buffer.allocUnsafe(length)
    let at = length
    for (let i = this.#chunks.length - 1; at > 0; i--) {
      const chunk = this.#chunks[i]!
      const from = Math.max(0, chunk.length - at)
      at -= chunk.length - from
      chunk.copy(bytes, at, from)
    }
    return bytes
  }

  #join(): void {
    this.#chunks = [this.last(MAX_TAIL)]
    this.#first = 0
    this.#held = this.#chunks[0]!.length
  }

  #drop(): void {
    this.#chunks = this.#chunks.slice(this.#first)
    this.#first = 0
  }
}

const EMPTY = Buffer.alloc(0)
