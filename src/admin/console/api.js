/** Content of the console. @typedef {import('../overview/overview.ts').Overview & { readonly operator: import('../rights.ts').Operator }} Overview */

const STORAGE_KEY = 'sluice-admin-token'
const EVERY_MS = 1000
const TIMEOUT_MS = 6000
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
 * @param {{ method?: string, body?: object, signal?: AbortSignal }} [more]
 */
export async function ask(path, { method = 'GET', body, signal } = {}) {
  const token = sessionStorage.getItem(STORAGE_KEY)
  const response = await fetch(path, {
    method,
    headers: {
      Accept: 'application/json',
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
 * Calls `show` with the overview each second, and `lost` if it cannot be read, until `signal` is aborted or the gateway denies access.
 * @param {AbortSignal} signal
 * @param {{ show(overview: Overview): void, lost(why: string): void, denied(error: HttpError): void }} events
 */
export async function watch(signal, { show, lost, denied }) {
  let pauseMs = EVERY_MS
  while (!signal.aborted) {
    try {
      const either = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)])
      const overview = await (await ask('/overview', { signal: either })).json()
      if (signal.aborted) return
      show(overview)
      pauseMs = EVERY_MS
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof HttpError && (error.status === 401 || error.status === 403)) return denied(error)
      lost(error instanceof HttpError ? error.message : 'The gateway cannot be reached.')
      pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)
    }
    const waitMs = pauseMs
    await new Promise((resolve) => setTimeout(resolve, waitMs))
  }
}
