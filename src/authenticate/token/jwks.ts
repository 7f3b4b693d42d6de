import pLimit from 'p-limit'
import { Health, type HealthOptions } from '../../health.ts'
import { type KeyLocation, type KeySet, loadKeys, NoKeys } from './key-set.ts'

/** The keys that signatures are verified with. */
export interface Keys {
  /** Returns the keys as last read; undefined if there are none, or they must be read first. */
  current(): KeySet | undefined
  /** Reads the keys and returns the result, the old keys if that fails; undefined during the cool-down. Never rejects. */
  refresh(): Promise<KeySet | undefined> | undefined
}

/** Called once when reads begin to fail, and once when they succeed again. Keys that were read stay in force. */
type KeyEvents = Pick<HealthOptions, 'onDown' | 'onUp'>

export interface KeySourceOptions extends KeyLocation {
  /** The keys, if they were just read. */
  readonly keys?: KeySet | undefined
  /** `onFailed` is called for each load that fails. */
  readonly events: KeyEvents & { readonly onFailed?: () => void }
  /** Pause between periodic loads; by default 10 minutes for a URL, 10 s for a file. */
  readonly refreshMs?: number
  /** Minimum pause between two loads for unknown keys in tokens. */
  readonly cooldownMs?: number
  /** Pause after a first failed load; it doubles with each, up to 30 s. */
  readonly retryMs?: number
}

export type KeySource = ReturnType<typeof createKeySource>

const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: loads them at once, unless they are given, retries with a back-off while that fails, then loads them
 * periodically, and on demand after a cool-down. Loads never overlap. A removed key is rejected after the next load.
 */
export function createKeySource(options: KeySourceOptions) {
  const { jwks, events, cooldownMs = 10_000, retryMs = 500 } = options
  const isFile = typeof jwks === 'string' && !/^https?:\/\//i.test(jwks)
  const refreshMs = options.refreshMs ?? (isFile ? 10_000 : 600_000)
  let keys = options.keys
  let readAt = performance.now()
  let loading: Promise<KeySet | undefined> | undefined
  let refreshedAt = -Infinity
  let timer: NodeJS.Timeout | undefined
  let controller: AbortController | undefined
  let closed = false
  const health = new Health({
    backoffMs: Math.min(retryMs, refreshMs),
    maxBackoffMs: Math.min(MAX_RETRY_MS, refreshMs),
    ...events,
    async probe() {
      await load()
      if (!health.up) throw new Error('still down')
    },
  })

  function load(): Promise<KeySet | undefined> {
    loading ??= attempt().finally(() => (loading = undefined))
    return loading
  }

  async function attempt(): Promise<KeySet | undefined> {
    clearTimeout(timer)
    controller = new AbortController()
    try {
      keys = await loadKeys(options, keys, {}, controller)
      readAt = performance.now()
      health.succeeded()
      scheduleRefresh()
    } catch (error) {
      if (error instanceof NoKeys) keys = undefined
      if (!closed) events.onFailed?.()
      health.failed(error as Error)
    }
    return keys
  }

  function scheduleRefresh(): void {
    if (!closed) timer = setTimeout(() => void load(), refreshMs).unref()
  }

  if (keys === undefined) void load()
  else scheduleRefresh()
  return {
    current: () => keys,
    /** Returns when the keys were last read, or, before the first time, when the source was created (`performance.now()`). */
    readAt: () => readAt,
    refresh() {
      if (loading !== undefined) return loading
      const now = performance.now()
      const pauseMs = keys === undefined ? Math.min(retryMs, cooldownMs) : cooldownMs
      if (closed || now - refreshedAt < pauseMs) return undefined
      refreshedAt = now
      return load()
    },
    close() {
      closed = true
      health.stop()
      controller?.abort()
      clearTimeout(timer)
    },
  }
}

export interface ClientKeysOptions extends KeyLocation {
  /** A JWK Set, or its URL. */
  readonly jwks: string | object
  readonly events: KeyEvents
  /** Age at which keys are read again. */
  readonly maxAgeMs?: number
  /** Minimum pause between two reads; at most 1 s without keys, as refused callers get `Retry-After: 1`. */
  readonly cooldownMs?: number
}

/** Bounds of a client's key set: each of the listed clients could publish an expensive one. */
const CLIENT_BOUNDS = { maxBytes: 64 * 1024, maxKeys: 20 }
/** Limits the concurrent reads of all clients together, which wait at most `MAX_WAIT_MS` for others. */
const limit = pLimit(32)
const MAX_WAIT_MS = 3000

/** Creates the keys of a client, which are read only when a signature needs them and they are old. */
export function createClientKeys(options: ClientKeysOptions): Keys & { close(): void } {
  const { jwks, events, maxAgeMs = 600_000, cooldownMs = 10_000 } = options
  const health = new Health({ backoffMs: cooldownMs, ...events })
  let keys: KeySet | undefined
  let readAt = -Infinity
  let startedAt = -Infinity
  let reading: Promise<KeySet | undefined> | undefined
  let closed = false
  const mayRead = (now: number): boolean =>
    now - startedAt >= (keys === undefined ? Math.min(cooldownMs, 1000) : cooldownMs)

  async function read(): Promise<KeySet | undefined> {
    try {
      keys = await limit(() => {
        if (performance.now() - startedAt > MAX_WAIT_MS)
          throw new Error('too many keys of clients are being read')
        return loadKeys(options, keys, CLIENT_BOUNDS)
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
    current() {
      const now = performance.now()
      const isDue = typeof jwks === 'string' && now - readAt >= maxAgeMs && mayRead(now)
      return isDue ? undefined : keys
    },
    refresh() {
      if (reading !== undefined) return reading
      const now = performance.now()
      const isStatic = typeof jwks === 'object' && keys !== undefined
      if (closed || isStatic || !mayRead(now)) return undefined
      startedAt = now
      reading = read().finally(() => (reading = undefined))
      return reading
    },
    close() {
      closed = true
      health.stop()
    },
  }
}
