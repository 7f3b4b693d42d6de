/** The data of each event. @typedef {import('../../process/overview.ts').Overview} Overview */

const STORAGE_KEY = 'sluice-admin-token'
/** Timeout between two events, in milliseconds. */
const SILENT_MS = 6000
const MAX_PAUSE_MS = 8000

/** An unsuccessful response. */
export class HttpError extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail)
    this.status = status
  }
}

export const hasToken = () => sessionStorage.getItem(STORAGE_KEY) !== null

/** @param {string | undefined} token */
export function keepToken(token) {
  if (token === undefined) sessionStorage.removeItem(STORAGE_KEY)
  else sessionStorage.setItem(STORAGE_KEY, token)
}

/**
 * Sends a request to the gateway; rejects with an HttpError unless it succeeds.
 * @param {string} path
 * @param {{ method?: string, accept?: string, body?: object, signal?: AbortSignal }} [more]
 */
export async function ask(path, { method = 'GET', accept = 'application/json', body, signal } = {}) {
  const token = sessionStorage.getItem(STORAGE_KEY)
  const response = await fetch(path, {
    method,
    headers: {
      Accept: accept,
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...(token !== null && { Authorization: `Bearer ${token}` }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal !== undefined && { signal }),
  })
  if (response.ok) return response
  const text = await response.text()
  /** @type {{ detail?: string } | undefined} */
  let problem
  try {
    problem = JSON.parse(text)
  } catch {}
  throw new HttpError(response.status, problem?.detail ?? text)
}

/**
 * Calls `show` with the data that the gateway sends each second. Reconnects when the stream ends, until `signal` is aborted or
 * the gateway denies access.
 * @param {AbortSignal} signal
 * @param {{ show(overview: Overview): void, lost(why: string): void, denied(error: HttpError): void }} events
 */
export async function watch(signal, { show, lost, denied }) {
  let pauseMs = 500
  while (!signal.aborted) {
    const silent = new AbortController()
    let timer = setTimeout(() => silent.abort(), SILENT_MS)
    try {
      const either = AbortSignal.any([signal, silent.signal])
      const { body } = await ask('/overview', { accept: 'text/event-stream', signal: either })
      for await (const event of eventsOf(/** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (body))) {
        clearTimeout(timer)
        timer = setTimeout(() => silent.abort(), SILENT_MS)
        pauseMs = 500
        show(JSON.parse(event))
      }
      lost('The gateway has ended the connection.')
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof HttpError && (error.status === 401 || error.status === 403)) return denied(error)
      lost(error instanceof HttpError ? error.message : 'The gateway cannot be reached.')
    } finally {
      clearTimeout(timer)
    }
    const waitMs = pauseMs
    await new Promise((resolve) => setTimeout(resolve, waitMs))
    pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)
  }
}

/**
 * Yields the data of server-sent events that have one line each.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      text += value
      const parts = text.split('\n\n')
      text = parts.pop() ?? ''
      for (const part of parts) if (part.startsWith('data: ')) yield part.slice(6)
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
