import pLimit from 'p-limit'
import { Health, type HealthOptions } from '../../health.ts'
import { type KeyLocation, type KeySet, loadKeys, NoKeys } from '../jose/key-set.ts'
import { toError } from '../../runtime/to-error.ts'

export interface Keys {
  /** Returns the keys as last read; undefined if there are none, or they must be read first. */
  current(): KeySet | undefined
  /**
   * Reads the keys and returns the result, the old keys if that fails; undefined during the
   * cool-down. Never rejects.
   */
  refresh(): Promise<KeySet | undefined> | undefined
  /** True if the last read failed, so that keys that exist may be unknown here. */
  isStale(): boolean
}

export interface KeysOptions extends KeyLocation {
  /** The keys, if they were just read. */
  readonly keys?: KeySet | undefined
  /**
   * Called once when reads begin to fail, and once when they succeed again. Keys that were read
   * stay in force.
   */
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'> & { readonly onFailed?: () => void }
  /** Minimum pause between two reads on demand. */
  readonly cooldownMs?: number
  /** Age at which keys are read again; by default 10 minutes, or 10 s for a file. */
  readonly refreshMs?: number
  /** Pause after a first failed read, also between two reads on demand while there are no keys. */
  readonly retryMs?: number
}

/**
 * Creates keys that `load` replaces: once at a time, and on demand after a cool-down, which without
 * keys is at most `retryMs`.
 */
function createReader(options: KeysOptions, health: Health, load = loadKeys) {
  const { cooldownMs = 10_000, retryMs = DEFAULT_RETRY_MS, events } = options
  let { keys } = options
  let readAt = performance.now()
  let reading: Promise<KeySet | undefined> | undefined
  let refreshedAt = -Infinity
  let failures = 0
  let hasFailed = false
  let closed = false

  async function attempt(): Promise<KeySet | undefined> {
    try {
      keys = await load(options, keys)
      readAt = performance.now()
      hasFailed = false
      health.succeeded()
    } catch (error) {
      if (error instanceof NoKeys) keys = undefined
      failures++
      hasFailed = true
      if (!closed) events.onFailed?.()
      health.failed(toError(error))
    }
    return keys
  }

  function read(): Promise<KeySet | undefined> {
    reading ??= attempt().finally(() => (reading = undefined))
    return reading
  }

  function mayRefresh(): boolean {
    const pauseMs = keys === undefined ? Math.min(retryMs, cooldownMs) : cooldownMs
    return performance.now() - refreshedAt >= pauseMs
  }

  return {
    read,
    mayRefresh,
    current: () => keys,
    isStale: () => hasFailed,
    /** Returns when the keys were last read or, before the first time, when it was created. */
    readAt: () => readAt,
    failures: () => failures,
    refresh() {
      if (reading !== undefined) return reading
      if (closed || !mayRefresh()) return undefined
      refreshedAt = performance.now()
      return read()
    },
    close() {
      closed = true
      health.stop()
    },
  }
}

/** The keys of an issuer, which are read periodically until it is closed. */
export interface KeySource extends Keys {
  /**
   * Returns when the keys were last read or, before the first time, when it was created
   * (`performance.now()`).
   */
  readAt(): number
  /** Returns the number of failed reads. */
  failures(): number
  close(): void
}

const DEFAULT_RETRY_MS = 500
const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: reads them unless they are given, retries with a back-off, then reads
 * them periodically, and on demand after a cool-down. Reads never overlap.
 */
export function createKeySource(options: KeysOptions): KeySource {
  const { jwks, events, retryMs = DEFAULT_RETRY_MS } = options
  const isFile = typeof jwks === 'string' && !/^https?:\/\//i.test(jwks)
  const { refreshMs = isFile ? 10_000 : 600_000 } = options
  const health = new Health({
    backoffMs: retryMs,
    maxBackoffMs: MAX_RETRY_MS,
    ...events,
    async probe() {
      await reader.read()
      if (!health.up) throw new Error('still down')
    },
  })
  const reader = createReader(options, health)
  const timer = setInterval(() => void reader.read(), refreshMs).unref()
  if (reader.current() === undefined) void reader.read()
  return {
    ...reader,
    close() {
      reader.close()
      clearInterval(timer)
    },
  }
}

/** Bounds of a client's key set: each of the listed clients could publish an expensive one. */
const CLIENT_BOUNDS = { maxBytes: 256 * 1024, maxKeys: 20 }
/**
 * Limits the concurrent reads of all clients together, which wait at most `MAX_WAIT_MS` for others.
 */
const limit = pLimit(32)
const MAX_WAIT_MS = 3000

/**
 * Creates the keys of a client, which are read only when a signature needs them and they are old.
 */
export function createClientKeys(options: KeysOptions): Keys & { close(): void } {
  const { events, refreshMs = 600_000 } = options
  const health = new Health({ backoffMs: 0, ...events })
  const reader = createReader({ ...options, ...CLIENT_BOUNDS }, health, (location, previous) => {
    const since = performance.now()
    return limit(() => {
      if (performance.now() - since > MAX_WAIT_MS) throw new Error('too many reads of client keys')
      return loadKeys(location, previous)
    })
  })
  return {
    ...reader,
    current() {
      const isOld = performance.now() - reader.readAt() >= refreshMs
      return isOld && reader.mayRefresh() ? undefined : reader.current()
    },
  }
}
