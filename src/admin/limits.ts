import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ClientUsage } from '../limit/usage.ts'
import { type Answer, problem } from './access.ts'

export interface LimitsParts {
  /** Returns what a client has used; rejects if the store cannot be asked. */
  usage(client: string, signal: AbortSignal): Promise<ClientUsage>
  /** Frees what is counted of a client, and returns how many keys; rejects if the store cannot be asked. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Called with why the store could not be asked. */
  failed(error: unknown): void
}

/** Creates what answers `GET` and `DELETE /limits/:client`, the client percent-encoded; it never rejects. */
export function createLimits({ usage, reset, failed }: LimitsParts) {
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

  return async (
    { method = '' }: IncomingMessage,
    response: ServerResponse,
    path: string,
  ): Promise<Answer> => {
    const [, encoded] = /^\/limits\/([^/]+)$/.exec(path) ?? []
    if (encoded === undefined) {
      return problem(404, 'Ask for /limits/ with the id of a client, percent-encoded.')
    }
    let client: string
    try {
      client = decodeURIComponent(encoded)
    } catch {
      return problem(400, 'The id of the client is not percent-encoded UTF-8.')
    }
    if (!['GET', 'HEAD', 'DELETE'].includes(method)) {
      return problem(405, 'Only GET, HEAD and DELETE.', { Allow: 'GET, HEAD, DELETE' })
    }
    try {
      const body = await queued(response, async (signal) =>
        method === 'DELETE' ? { client, freed: await reset(client, signal) } : await usage(client, signal),
      )
      return { status: 200, body }
    } catch (error) {
      if (!response.destroyed) failed(error)
      const { name, message } = error as Error
      const detail = name === 'DamagedKeyError' ? message : 'The counters are out of reach.'
      return problem(503, detail, { 'Retry-After': '1' })
    }
  }
}
