import pLimit from 'p-limit'
import { Health } from '../../health.ts'
import { type Keys, type KeyLocation, type KeySourceOptions, loadKeys, NoKeys } from './jwks.ts'
import type { KeySet } from './key-set.ts'

export interface ClientKeysOptions extends KeyLocation {
  /** A JWK Set, or its URL. */
  readonly jwks: string | object
  /** Called once when reads begin to fail, and once when they succeed again. Keys that were read stay in force. */
  readonly events: Pick<KeySourceOptions['events'], 'onDown' | 'onUp'>
  /** Age at which keys are read again, in milliseconds. */
  readonly maxAgeMs?: number
  /** Shortest time between two reads, in milliseconds; while there are no keys, `Retry-After: 1` has callers ask each second. */
  readonly cooldownMs?: number
}

/** Bounds of a client's key set: every client that is listed may publish one, and so choose what reading it costs. */
const BOUNDS = { maxBytes: 64 * 1024, maxKeys: 20 }
/** Reads of all clients together. */
const limit = pLimit(32)
/** Longest that a read waits for others, in milliseconds. */
const MAX_WAIT_MS = 3000

/** Creates the keys of a client, which are read when a signature needs them and they are old, and never otherwise. */
export function createClientKeys(options: ClientKeysOptions): Keys & { close(): void } {
  const { jwks, events, maxAgeMs = 600_000, cooldownMs = 10_000 } = options
  const isOver = (now: number): boolean =>
    now - askedAt >= (keys === undefined ? Math.min(cooldownMs, 1000) : cooldownMs)
  const health = new Health({ backoffMs: cooldownMs, ...events })
  let keys: KeySet | undefined
  let readAt = -Infinity
  let askedAt = -Infinity
  let reading: Promise<KeySet | undefined> | undefined
  let closed = false

  async function read(): Promise<KeySet | undefined> {
    const since = performance.now()
    try {
      keys = await limit(() => {
        if (performance.now() - since > MAX_WAIT_MS)
          throw new Error('too many keys of clients are being read')
        return loadKeys({ ...options, ...BOUNDS }, keys)
      })
      readAt = performance.now()
      health.succeeded()
    } catch (error) {
      if (error instanceof NoKeys) keys = undefined
      health.failed(error as Error)
    }
    return keys
  }

  return {
    /** Returns the keys as last read; undefined if they are to be read first. */
    current() {
      const now = performance.now()
      const isDue = typeof jwks === 'string' && now - readAt >= maxAgeMs && isOver(now)
      return isDue ? undefined : keys
    },
    /** Reads the keys and returns what then holds, the old ones if that fails; undefined during the cool-down. Never rejects. */
    refresh() {
      if (reading !== undefined) return reading
      const now = performance.now()
      const isStatic = typeof jwks === 'object' && keys !== undefined
      if (closed || isStatic || !isOver(now)) return undefined
      askedAt = now
      reading = read().finally(() => (reading = undefined))
      return reading
    },
    close() {
      closed = true
      health.stop()
    },
  }
}
