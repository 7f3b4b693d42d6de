import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AdminResponse, problem } from './access.ts'
import { type RequestLine, parseRequestLine, readSetting, type Setting } from './questions.ts'

/** What operators ask about limits. Each rejects with an InvalidQuestion, or if the store cannot be asked. */
export interface LimitsParts {
  /** Returns what a client has used. */
  usage(client: string, signal: AbortSignal): Promise<object>
  /** Frees what is counted of a client, and returns how many keys. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Sets and removes overrides of one client. */
  setLimits(setting: Setting): Promise<object>
  overrides(): Promise<readonly object[]>
  explain(question: RequestLine): Promise<object>
  /** Called with why the store could not be asked. */
  failed(error: unknown): void
}

const MAY_BE_UNSET =
  'The change may not be in force; until Redis answers, write it to clients[].limits of the file.'
const ALLOW = 'GET, HEAD, DELETE, PATCH'

/** Creates what answers `/limits/:client`, the client percent-encoded, `/overrides` and `/explain`; it never rejects. */
export function createLimits({ usage, reset, setLimits, overrides, explain, failed }: LimitsParts) {
  let last: Promise<unknown> = Promise.resolve()

  /** Acts for one operator at a time, as each may scan all of Redis, and for none that has left. */
  async function queued<T>(response: ServerResponse, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const left = new AbortController()
    response.once('close', () => left.abort())
    const result = last.then(async () => {
      left.signal.throwIfAborted()
      return await act(left.signal)
    })
    last = result.catch(() => {})
    return await result
  }

  async function ofClient(
    request: IncomingMessage,
    response: ServerResponse,
    encoded: string,
  ): Promise<AdminResponse> {
    const { method = '' } = request
    let client: string
    try {
      client = decodeURIComponent(encoded)
    } catch {
      return problem(400, 'The id of the client is not percent-encoded UTF-8.')
    }
    if (method === 'PATCH') return ok(await setLimits(await readSetting(request, client)))
    if (method === 'DELETE')
      return await queued(response, async (signal) => ok({ client, freed: await reset(client, signal) }))
    if (method !== 'GET' && method !== 'HEAD') return notAllowed(ALLOW)
    return await queued(response, async (signal) => ok(await usage(client, signal)))
  }

  async function answer(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
  ): Promise<AdminResponse> {
    const { method, url = '' } = request
    const [, encoded] = /^\/limits\/([^/]+)$/.exec(path) ?? []
    if (encoded !== undefined) return await ofClient(request, response, encoded)
    if (path.startsWith('/limits'))
      return problem(404, 'Ask for /limits/ with the id of a client, percent-encoded.')
    if (method !== 'GET' && method !== 'HEAD') return notAllowed('GET, HEAD')
    if (path === '/overrides') return ok({ overrides: await overrides() })
    return ok(await explain(parseRequestLine(new URLSearchParams(url.slice(path.length)))))
  }

  return async (request: IncomingMessage, response: ServerResponse, path: string): Promise<AdminResponse> => {
    try {
      return await answer(request, response, path)
    } catch (error) {
      const { name, message } = error as Error
      if (name === 'InvalidQuestion') return problem(400, message)
      if (!response.destroyed) failed(error)
      const change = request.method === 'PATCH' ? ` ${MAY_BE_UNSET}` : ''
      const detail = name === 'DamagedKeyError' ? message : `The counters are out of reach.${change}`
      return problem(503, detail, { 'Retry-After': '1' })
    }
  }
}

const ok = (body: object): AdminResponse => ({ status: 200, body })
const notAllowed = (allow: string): AdminResponse =>
  problem(405, `Only ${allow.replace(/, (\w+)$/, ' and $1')}.`, { Allow: allow })
