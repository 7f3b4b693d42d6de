import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { ClientUsage } from '../limit/usage.ts'
import { type Access, deny } from './access.ts'

/** What operators do about one client. */
export interface LimitParts extends Access {
  /** Returns what the client has used; rejects if the store cannot be asked. */
  usage(client: string, signal: AbortSignal): Promise<ClientUsage>
  /** Frees what is counted of the client, and returns how many keys; rejects if the store cannot be asked. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Called with why the store could not be asked. */
  failed(error: unknown): void
}

/** A response of the operators' listener; an object as its body is JSON. */
export interface Answer {
  readonly status: number
  readonly body: string | object
  readonly headers?: Readonly<Record<string, string>>
}

/** Answers `GET` and `DELETE /limits/:client`, the client percent-encoded; never rejects. */
export function createLimits(
  parts: LimitParts,
): (request: IncomingMessage, response: ServerResponse, path: string) => Promise<Answer> {
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

  return async ({ method, headers }, response, path) => {
    const denial = deny(headers, parts)
    if (denial) return problem(denial.status, denial.detail, denial.headers)
    const [, encoded] = /^\/limits\/([^/]+)$/.exec(path) ?? []
    if (encoded === undefined) {
      return problem(404, 'Ask for /limits/ with the id of a client, percent-encoded.')
    }
    const client = decode(encoded)
    if (client === undefined) return problem(400, 'The id of the client is not percent-encoded UTF-8.')
    try {
      if (method === 'GET' || method === 'HEAD') {
        return { status: 200, body: await queued(response, (signal) => parts.usage(client, signal)) }
      }
      if (method !== 'DELETE') {
        return problem(405, 'Only GET, HEAD and DELETE.', { Allow: 'GET, HEAD, DELETE' })
      }
      const freed = await queued(response, (signal) => parts.reset(client, signal))
      return { status: 200, body: { client, freed } }
    } catch (error) {
      if (!response.destroyed) parts.failed(error)
      const { name, message } = error as Error
      const detail = name === 'DamagedKeyError' ? message : 'The counters are out of reach.'
      return problem(503, detail, { 'Retry-After': '1' })
    }
  }
}

/** RFC 9457. */
function problem(status: number, detail: string, headers: Answer['headers'] = {}): Answer {
  const body = { type: 'about:blank', title: STATUS_CODES[status], status, detail }
  return { status, body, headers: { 'Content-Type': 'application/problem+json', ...headers } }
}

function decode(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
