import { request } from 'node:https'
import { text } from 'node:stream/consumers'
import type { IncomingMessage } from 'node:http'
import { once } from 'node:events'

/** Tokens of operators, each with its right; the limits of `team` are only `requests`. */
export const OPERATOR_TOKENS = {
  all: 'a-token-with-all-rights',
  support: 'the-token-of-support',
  team: 'the-token-of-the-team',
  ops: 'the-token-of-operations',
} as const

/** The setting `admin` with these operators on a free port; `more` are further keys. */
export const withOperators = (more: object = {}) => ({
  port: 0,
  token: OPERATOR_TOKENS.all,
  tokens: [
    { name: 'support', token: OPERATOR_TOKENS.support, may: 'read' },
    { name: 'team', token: OPERATOR_TOKENS.team, may: ['requests'] },
    { name: 'ops', token: OPERATOR_TOKENS.ops, may: 'set' },
  ],
  ...more,
})

export const bearerOf = (token: string) => ({ Authorization: `Bearer ${token}` })

/** The request that sets limits of a caller. */
export const setting = (set: Record<string, number | null>, more: object = {}) => ({
  method: 'PATCH',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ set, ...more }),
})

interface SecureCall {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string
  readonly cert?: string
  readonly key?: string
}

/** Sends a request over TLS with a new connection, and a client certificate if one is given. */
export async function callSecurely(port: number, path: string, more: SecureCall = {}) {
  const { body, ...options } = more
  const sent = request({ host: '127.0.0.1', port, path, agent: false, rejectUnauthorized: false, ...options })
  sent.end(body)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  const received = await text(response)
  const isJson = /json/.test(response.headers['content-type'] ?? '')
  // oxlint-disable-next-line typescript/no-explicit-any
  const json: any = isJson ? JSON.parse(received) : null
  return { status: response.statusCode, body: received, json }
}
