import { readJson, shownUrl } from './fetch-json.ts'
import { type KeySet, readKeySet } from './key-set.ts'

/** Where the keys of an issuer come from. */
export interface KeyPlace {
  readonly issuer: string
  /** An http(s) URL, or the path of a file; unless given, the `jwks_uri` of the issuer's discovery document. */
  readonly jwks?: string | undefined
  /** Longest that one load takes, discovery included. */
  readonly fetchTimeoutMs?: number
}

/** Where the keys of an issuer come from, and how they are kept fresh. */
export interface KeySourceOptions extends KeyPlace {
  /** The keys that were just read there, unless they are yet to be read. */
  readonly keys?: KeySet | undefined
  readonly events: KeySourceEvents
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

/** Keys as verifying asks for them. */
export interface Keys {
  /** The keys as last read; undefined before that, or where the issuer publishes none that can be used. */
  current(): KeySet | undefined
  /** Reads the keys again and gives what then holds; undefined where it is too early for that. Never rejects. */
  refresh(): Promise<KeySet | undefined> | undefined
}

/** An issuer's keys, loaded in the background. */
export interface KeySource extends Keys {
  /** When they were last read, or, before the first time, when they were first wanted: `performance.now()` milliseconds. */
  readAt(): number
  close(): void
}

const MAX_RETRY_MS = 30_000

/**
 * Keeps an issuer's keys: loads them at once, unless they are given, and in the background, again and again with growing pauses while that fails,
 * then periodically, and on demand at most once a cool-down. Loads never overlap. A removed key is gone with the next load.
 */
export function createKeySource(options: KeySourceOptions): KeySource {
  const { jwks, events, cooldownMs = 10_000, retryMs = 500 } = options
  const isFile = jwks !== undefined && !/^https?:\/\//i.test(jwks)
  const refreshMs = options.refreshMs ?? (isFile ? 10_000 : 600_000)
  let keys = options.keys
  let readAt = performance.now()
  let loading: Promise<KeySet | undefined> | undefined
  let failures = 0
  let askedAt = -Infinity
  let timer: NodeJS.Timeout | undefined
  let underWay: AbortController | undefined
  let closed = false

  function load(): Promise<KeySet | undefined> {
    loading ??= attempt().finally(() => (loading = undefined))
    return loading
  }

  async function attempt(): Promise<KeySet | undefined> {
    clearTimeout(timer)
    underWay = new AbortController()
    let pauseMs = refreshMs
    try {
      keys = await loadKeys(options, keys, underWay)
      readAt = performance.now()
      if (failures > 0 && !closed) events.recovered()
      failures = 0
    } catch (error) {
      if (error instanceof NoKeys) keys = undefined
      pauseMs = Math.min(retryMs * 2 ** Math.min(failures, 20), MAX_RETRY_MS, refreshMs)
      failures++
      if (failures === 1 && !closed) events.failed((error as Error).message)
    }
    later(pauseMs)
    return keys
  }

  function later(pauseMs: number): void {
    if (!closed) timer = setTimeout(() => void load(), pauseMs).unref()
  }

  if (keys === undefined) void load()
  else later(refreshMs)
  return {
    current: () => keys,
    readAt: () => readAt,
    refresh() {
      if (loading !== undefined) return loading
      const now = performance.now()
      const restMs = keys === undefined ? Math.min(retryMs, cooldownMs) : cooldownMs
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

/** A JWK Set without a key that is of use. */
class NoKeys extends Error {}

/** Reads an issuer's keys once, those that `previous` holds taken over from it; rejects with what is wrong, also where there are none. */
export async function loadKeys(
  { issuer, jwks, fetchTimeoutMs = 3000 }: KeyPlace,
  previous?: KeySet,
  controller = new AbortController(),
): Promise<KeySet> {
  const { signal } = controller
  const late = setTimeout(
    () => controller.abort(new DOMException('too late', 'TimeoutError')),
    fetchTimeoutMs,
  )
  try {
    const where = jwks ?? (await discover(issuer, signal))
    const document = await readJson(where, signal)
    const keys = await readKeySet(document, previous).catch((error: Error) => {
      throw new Error(`${shownUrl(where)} ${error.message}`, { cause: error })
    })
    if (keys.size === 0) throw new NoKeys(`${shownUrl(where)} holds no key that could verify a token`)
    return keys
  } finally {
    clearTimeout(late)
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
