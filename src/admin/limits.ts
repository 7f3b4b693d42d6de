import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { ClientUsage } from '../limit/usage.ts'
import { type Access, deny } from './access.ts'

/** What operators do about one client. */
export interface LimitParts extends Access {
  /** What the client has used; rejects where the store cannot be asked. */
  usage(client: string, signal: AbortSignal): Promise<ClientUsage>
  /** Frees what is counted of the client: how many keys; rejects where the store cannot be asked. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Told why the store could not be asked. */
  failed(error: unknown): void
}

/** An answer in JSON. */
export interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: unknown
}

const PATH = /^\/limits\/([^/]+)$/

/** Is this path one of `/limits`? */
export function isLimitsPath(path: string): boolean {
  return path === '/limits' || path.startsWith('/limits/')
}

/** Answers `GET` and `DELETE /limits/:client`, of which the client is percent-encoded; never rejects. */
export function createLimits(
  parts: LimitParts,
): (request: IncomingMessage, response: ServerResponse, path: string) => Promise<Answer> {
  let last: Promise<unknown> = Promise.resolve()

  /** Does one at a time, as each may scan all of Redis, and none whose asker has left. */
  async function inTurn<T>(response: ServerResponse, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const left = new AbortController()
    response.once('close', () => left.abort())
    const mine = last.then(async () => {
      left.signal.throwIfAborted()
      return await act(left.signal)
    })
    last = mine.catch(() => {})
    return await mine
  }

  return async ({ method, headers }, response, path) => {
    const denial = deny(headers, parts)
    if (denial) return problem(denial.status, denial.detail, denial.headers)
    const [, written] = PATH.exec(path) ?? []
    if (written === undefined)
      return problem(404, 'Ask for /limits/ with the id of a client, percent-encoded.')
    const client = decode(written)
    if (client === undefined) return problem(400, 'The id of the client is not percent-encoded UTF-8.')
    try {
      switch (method) {
        case 'GET':
        case 'HEAD':
          return { status: 200, body: await inTurn(response, (signal) => parts.usage(client, signal)) }
        case 'DELETE': {
          const freed = await inTurn(response, (signal) => parts.reset(client, signal))
          return { status: 200, body: { client, freed } }
        }
        default:
          return problem(405, 'Only GET, HEAD and DELETE.', { Allow: 'GET, HEAD, DELETE' })
      }
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
  return {
    status,
    headers: { 'Content-Type': 'application/problem+json', ...headers },
    body: { type: 'about:blank', title: STATUS_CODES[status], status, detail },
  }
}

function decode(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
