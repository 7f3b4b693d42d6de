import { readJson, shownUrl } from './fetch-json.ts'
import { type KeySet, readKeySet } from './key-set.ts'

/** Where the keys of an issuer come from, and how they are kept fresh. */
export interface KeySourceOptions {
  readonly issuer: string
  /** An http(s) URL, or the path of a file; unless given, the `jwks_uri` of the issuer's discovery document. */
  readonly jwks?: string | undefined
  readonly events: KeySourceEvents
  /** Longest that one load takes, discovery included. */
  readonly fetchTimeoutMs?: number
  /** How often the keys are read again; a file's more often, since that costs little. */
  readonly refreshMs?: number
  /** How often at most unknown keys in tokens make the source look again. */
  readonly cooldownMs?: number
  /** The pause after a first failed load; it doubles with each, up to 30 s. */
  readonly retryMs?: number
}

export interface KeySourceEvents {
  /** Told once an outage, with what went wrong. The keys read before, if any, go on serving. */
  failed(reason: string): void
  /** Told when the keys could be read again after `failed`. */
  recovered(): void
}

/** An issuer's keys, loaded in the background from the moment that it is created. */
export interface KeySource {
  /** The keys as last read; undefined before that, or where the issuer publishes none that can be used. */
  current(): KeySet | undefined
  /** Reads the keys again and gives what then holds; undefined where it is too early for that. Never rejects. */
  refresh(): Promise<KeySet | undefined> | undefined
  close(): void
}

const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: loads them at once and in the background, again and again with growing pauses while that fails,
 * then periodically, and on demand at most once a cool-down. Loads never overlap. A removed key is gone with the next load.
 */
export function createKeySource(options: KeySourceOptions): KeySource {
  const { issuer, jwks, events, fetchTimeoutMs = 3000, cooldownMs = 10_000, retryMs = 500 } = options
  const isFile = jwks !== undefined && !/^https?:\/\//i.test(jwks)
  const refreshMs = options.refreshMs ?? (isFile ? 10_000 : 600_000)
  let keys: KeySet | undefined
  let loading: Promise<KeySet | undefined> | undefined
  let failures = 0
  let askedAt = -Infinity
  let timer: NodeJS.Timeout | undefined
  let underWay: AbortController | undefined
  let closed = false

  const usable = (): KeySet | undefined => (keys !== undefined && keys.size > 0 ? keys : undefined)

  function load(): Promise<KeySet | undefined> {
    loading ??= attempt().finally(() => (loading = undefined))
    return loading
  }

  async function attempt(): Promise<KeySet | undefined> {
    clearTimeout(timer)
    const controller = (underWay = new AbortController())
    const late = setTimeout(
      () => controller.abort(new DOMException('too late', 'TimeoutError')),
      fetchTimeoutMs,
    )
    let pauseMs = refreshMs
    try {
      await read(controller.signal)
      if (failures > 0 && !closed) events.recovered()
      failures = 0
    } catch (error) {
      pauseMs = Math.min(retryMs * 2 ** Math.min(failures, 20), MAX_RETRY_MS, refreshMs)
      failures++
      if (failures === 1 && !closed) events.failed((error as Error).message)
    } finally {
      clearTimeout(late)
    }
    if (!closed) timer = setTimeout(() => void load(), pauseMs).unref()
    return usable()
  }

  async function read(signal: AbortSignal): Promise<void> {
    const where = jwks ?? (await discover(issuer, signal))
    const document = await readJson(where, signal)
    try {
      keys = await readKeySet(document, keys)
    } catch (error) {
      throw new Error(`${shownUrl(where)} ${(error as Error).message}`, { cause: error })
    }
    if (keys.size === 0) throw new Error(`${shownUrl(where)} holds no key that could verify a token`)
  }

  void load()
  return {
    current: usable,
    refresh() {
      if (loading !== undefined) return loading
      const now = performance.now()
      const restMs = usable() === undefined ? Math.min(retryMs, cooldownMs) : cooldownMs
      if (closed || now - askedAt < restMs) return undefined
      askedAt = now
      return load()
    },
    close() {
      closed = true
      underWay?.abort()
      clearTimeout(timer)
    },
  }
}

/** The `jwks_uri` of an issuer (OpenID Connect Discovery 1.0, sections 4 and 4.3). */
async function discover(issuer: string, signal: AbortSignal): Promise<string> {
  const where = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`
  const document = (await readJson(where, signal)) as { issuer?: unknown; jwks_uri?: unknown } | null
  if (document?.issuer !== issuer)
    throw new Error(`${where} is the document of another issuer than ${issuer}`)
  const uri = document.jwks_uri
  const safe = issuer.startsWith('https:') ? /^https:\/\//i : /^https?:\/\//i
  if (typeof uri !== 'string' || !URL.canParse(uri) || !safe.test(uri)) {
    throw new Error(`${where} names no jwks_uri that can be used`)
  }
  return uri
}
