import { type IncomingMessage, STATUS_CODES } from 'node:http'
import { createDeadlines, TimeoutError } from '../limit/deadlines.ts'
import type { ClientUsage } from '../limit/usage.ts'
import { type Access, deny } from './access.ts'

/** What operators do about one client. */
export interface LimitParts extends Access {
  /** What the client has used; rejects where the store cannot be asked. */
  usage(client: string): Promise<ClientUsage>
  /** Frees what is counted of the client: how many keys; rejects where the store cannot be asked. */
  reset(client: string): Promise<number>
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
const SLOWEST_MS = 10_000

/** Is this path one of `/limits`? */
export function isLimitsPath(path: string): boolean {
  return path === '/limits' || path.startsWith('/limits/')
}

/** Answers `GET` and `DELETE /limits/:client`, of which the client is percent-encoded; never rejects. */
export function createLimits(parts: LimitParts): (request: IncomingMessage, path: string) => Promise<Answer> {
  const deadlines = createDeadlines(SLOWEST_MS)

  return async ({ method, headers }, path) => {
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
          return { status: 200, body: await deadlines.bound(parts.usage(client)) }
        case 'DELETE':
          return { status: 200, body: { client, freed: await deadlines.bound(parts.reset(client)) } }
        default:
          return problem(405, 'Only GET, HEAD and DELETE.', { Allow: 'GET, HEAD, DELETE' })
      }
    } catch (error) {
      parts.failed(error)
      const detail =
        error instanceof TimeoutError
          ? 'The counters take too long to read.'
          : 'The counters are out of reach.'
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
