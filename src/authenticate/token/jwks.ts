import pLimit from 'p-limit'
import { Health, type HealthOptions } from '../../health.ts'
import { type KeyLocation, type KeySet, loadKeys, NoKeys } from './key-set.ts'

export interface Keys {
  /** Returns the keys as last read; undefined if there are none, or they must be read first. */
  current(): KeySet | undefined
  /**
   * Reads the keys and returns the result, the old keys if that fails; undefined during the
   * cool-down. Never rejects.
   */
  refresh(): Promise<KeySet | undefined> | undefined
}

interface ReaderOptions extends KeyLocation {
  /** The keys, if they were just read. */
  readonly keys?: KeySet | undefined
  /**
   * Called once when reads begin to fail, and once when they succeed again. Keys that were read
   * stay in force.
   */
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'> & { readonly onFailed?: () => void }
  /** Minimum pause between two reads on demand. */
  readonly cooldownMs?: number
}

/**
 * Creates keys that `load` replaces: once at a time, and on demand after a cool-down, which without
 * keys is at most `retryMs`.
 */
function createReader(
  { keys, cooldownMs = 10_000, events }: ReaderOptions,
  retryMs: number,
  health: Health,
  load: (previous?: KeySet) => Promise<KeySet>,
) {
  let reading: Promise<KeySet | undefined> | undefined
  let refreshedAt = -Infinity
  const reader = {
    keys,
    /**
     * When the keys were last read, or, before the first time, when the reader was created
     * (`performance.now()`).
     */
    readAt: performance.now(),
    closed: false,
    mayRefresh: (now: number): boolean =>
      now - refreshedAt >= (reader.keys === undefined ? Math.min(retryMs, cooldownMs) : cooldownMs),
    refresh() {
      if (reading !== undefined) return reading
      const now = performance.now()
      if (reader.closed || !reader.mayRefresh(now)) return undefined
      refreshedAt = now
      return reader.read()
    },
    read(): Promise<KeySet | undefined> {
      reading ??= attempt().finally(() => (reading = undefined))
      return reading
    },
  }

  async function attempt(): Promise<KeySet | undefined> {
    try {
      reader.keys = await load(reader.keys)
      reader.readAt = performance.now()
      health.succeeded()
    } catch (error) {
      if (error instanceof NoKeys) reader.keys = undefined
      if (!reader.closed) events.onFailed?.()
      health.failed(error as Error)
    }
    return reader.keys
  }
  return reader
}

export interface KeySourceOptions extends ReaderOptions {
  /** Pause between periodic loads; by default 10 minutes for a URL, 10 s for a file. */
  readonly refreshMs?: number
  /** Pause after a first failed load; it doubles with each, up to 30 s. */
  readonly retryMs?: number
}

/** The keys of an issuer, which are loaded periodically until it is closed. */
export interface KeySource extends Keys {
  /**
   * Returns when the keys were last read or, before the first time, when it was created
   * (`performance.now()`).
   */
  readAt(): number
  close(): void
}

const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: loads them unless they are given, retries with a back-off, then loads
 * them periodically, and on demand after a cool-down. Loads never overlap.
 */
export function createKeySource(options: KeySourceOptions): KeySource {
  const { jwks, events, retryMs = 500 } = options
  const isFile = typeof jwks === 'string' && !/^https?:\/\//i.test(jwks)
  const refreshMs = options.refreshMs ?? (isFile ? 10_000 : 600_000)
  let timer: NodeJS.Timeout | undefined
  const health = new Health({
    backoffMs: Math.min(retryMs, refreshMs),
    maxBackoffMs: Math.min(MAX_RETRY_MS, refreshMs),
    ...events,
    async probe() {
      await reader.read()
      if (!health.up) throw new Error('still down')
    },
  })
  const reader = createReader(options, retryMs, health, async (previous) => {
    clearTimeout(timer)
    const keys = await loadKeys(options, previous)
    scheduleLoad()
    return keys
  })

  function scheduleLoad(): void {
    if (!reader.closed) timer = setTimeout(() => void reader.read(), refreshMs).unref()
  }

  if (reader.keys === undefined) void reader.read()
  else scheduleLoad()
  return {
    current: () => reader.keys,
    refresh: reader.refresh,
    readAt: () => reader.readAt,
    close() {
      reader.closed = true
      health.stop()
      clearTimeout(timer)
    },
  }
}

export interface ClientKeysOptions extends ReaderOptions {
  /** A JWK Set, or its URL. */
  readonly jwks: string | object
  /** Age at which keys are read again. */
  readonly maxAgeMs?: number
}

/** Bounds of a client's key set: each of the listed clients could publish an expensive one. */
const CLIENT_BOUNDS = { maxBytes: 64 * 1024, maxKeys: 20 }
/** Pause between reads while there are no keys: callers are refused with `Retry-After: 1`. */
const CLIENT_RETRY_MS = 1000
/**
 * Limits the concurrent reads of all clients together, which wait at most `MAX_WAIT_MS` for others.
 */
const limit = pLimit(32)
const MAX_WAIT_MS = 3000

/**
 * Creates the keys of a client, which are read only when a signature needs them and they are old.
 */
export function createClientKeys(options: ClientKeysOptions): Keys & { close(): void } {
  const { jwks, events, maxAgeMs = 600_000 } = options
  const health = new Health({ backoffMs: CLIENT_RETRY_MS, ...events })
  const reader = createReader(options, CLIENT_RETRY_MS, health, (previous) => {
    const since = performance.now()
    return limit(() => {
      if (performance.now() - since > MAX_WAIT_MS) throw new Error('too many reads of client keys')
      return loadKeys(options, previous, CLIENT_BOUNDS)
    })
  })
  return {
    current() {
      const now = performance.now()
      const isDue = typeof jwks === 'string' && now - reader.readAt >= maxAgeMs && reader.mayRefresh(now)
      return isDue ? undefined : reader.keys
    },
    refresh: () => (typeof jwks === 'object' && reader.keys ? undefined : reader.refresh()),
    close() {
      reader.closed = true
      health.stop()
    },
  }
}
