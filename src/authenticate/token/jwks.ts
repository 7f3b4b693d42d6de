import { Health, type HealthOptions } from '../../health.ts'
import { readJson, redactUrl, withTimeout } from './fetch-json.ts'
import { type KeySet, readKeySet } from './key-set.ts'

/** Where the keys of an issuer come from. */
export interface KeyLocation {
  readonly issuer: string
  /** An http(s) URL, the path of a file, or a JWK Set; by default the `jwks_uri` of the issuer's discovery document. */
  readonly jwks?: string | object | undefined
  /** Bounds of the JWK Set; by default 1 MB and 100 keys. */
  readonly maxBytes?: number
  readonly maxKeys?: number
  /** Longest that one load takes, discovery included. */
  readonly fetchTimeoutMs?: number
}

/** Where the keys of an issuer come from, and how they are kept fresh. */
export interface KeySourceOptions extends KeyLocation {
  /** The keys, if they were just read. */
  readonly keys?: KeySet | undefined
  /** Called once when loads begin to fail, and once when that is over. What was read before stays in force. */
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'> & {
    /** Called for each load that fails. */
    readonly onFailed?: () => void
  }
  /** How often the keys are read again; by default 10 minutes for a URL, 10 s for a file. */
  readonly refreshMs?: number
  /** Shortest pause between two loads for unknown keys in tokens. */
  readonly cooldownMs?: number
  /** The pause after a first failed load; it doubles with each, up to 30 s. */
  readonly retryMs?: number
}

/** An issuer's keys, loaded in the background. */
export type KeySource = ReturnType<typeof createKeySource>

/** The keys that signatures are verified with. */
export type Keys = Pick<KeySource, 'current' | 'refresh'>

const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: loads them at once, unless they are given, retries with a back-off while that fails, then loads them
 * periodically, and on demand once a cool-down. Loads never overlap. A removed key is gone with the next load.
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
      keys = await loadKeys(options, keys, controller)
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
    /** The keys as last read; undefined before that, or where the issuer publishes none that can be used. */
    current: () => keys,
    /** When they were last read, or, before the first time, when the source was made: `performance.now()` milliseconds. */
    readAt: () => readAt,
    /** Reads the keys again and returns what then holds; undefined during the cool-down. Never rejects. */
    refresh(): Promise<KeySet | undefined> | undefined {
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

/** A JWK Set without a usable key. */
export class NoKeys extends Error {}

/** Reads an issuer's keys once, taking over those that `previous` holds; rejects with what is wrong, also where there are none. */
export function loadKeys(
  { issuer, jwks, maxBytes, maxKeys, fetchTimeoutMs = 3000 }: KeyLocation,
  previous?: KeySet,
  controller?: AbortController,
): Promise<KeySet> {
  return withTimeout(
    fetchTimeoutMs,
    async (signal) => {
      const source = jwks ?? (await discover(issuer, signal)).jwksUri
      const name = typeof source === 'string' ? redactUrl(source) : 'jwks'
      const document = typeof source === 'string' ? await readJson(source, signal, maxBytes) : source
      const keys = await readKeySet(document, previous, maxKeys).catch((error: Error) => {
        throw new Error(`${name} ${error.message}`, { cause: error })
      })
      if (keys.keys.length === 0) throw new NoKeys(`${name} holds no key that could verify a token`)
      return keys
    },
    controller,
  )
}

/** Reads the metadata of an issuer (OpenID Connect Discovery 1.0, sections 4 and 4.3), of a document that is found under `base`. */
export async function discover(issuer: string, signal: AbortSignal, base = issuer) {
  const url = `${base.replace(/\/$/, '')}/.well-known/openid-configuration`
  const metadata = await readJson(url, signal)
  const { issuer: named, jwks_uri: uri } = metadata
  if (named !== issuer) throw new Error(`${url} is the document of another issuer than ${issuer}`)
  const safe = issuer.startsWith('https:') ? /^https:\/\//i : /^https?:\/\//i
  if (typeof uri === 'string' && URL.canParse(uri) && safe.test(uri)) return { jwksUri: uri, metadata }
  throw new Error(`${url} names no jwks_uri that can be used`)
}
