import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Caller } from '../limit/caller.ts'
import type { Refusal } from '../errors.ts'
import type { Decision } from '../limit/decision.ts'
import { type Peers, plainAddress } from '../downstream/trusted-proxies.ts'
import { type Dialect, errorReply, type Reply } from '../downstream/reply.ts'
import type { Route } from '../downstream/router.ts'

/** One request and what became of it, as log and metrics see it. Times are `performance.now()` milliseconds. */
export interface Exchange {
  readonly requestId: string
  readonly method: string
  readonly startedAt: number
  /** The address of the socket's peer, and of the caller as far as trusted proxies tell. */
  readonly peer: string
  readonly ip: string
  /** May the peer speak for others? */
  readonly trusted: boolean
  /** The host that the caller addressed. */
  host?: string
  path?: string
  route?: Route
  /** In whose words errors are told. */
  dialect: Dialect
  caller?: Caller
  decision?: Decision
  /** When the limiter was asked, and when it had decided. */
  limitAt?: number
  decidedAt?: number
  askedAt?: number
  headAt?: number
  source: 'gateway' | 'upstream'
  status: number
  /** Did the caller leave, or was it cut off, before the answer was whole? */
  incomplete?: 'left' | 'cut'
  error?: Refusal
  /** Why the gateway waited for the caller no longer. */
  givenUp?: string
}

/** What is known of a request before it is understood. */
export function openExchange(request: IncomingMessage, peers: Peers): Exchange {
  const peer = plainAddress(request.socket.remoteAddress ?? '')
  return {
    requestId: requestIdOf(request),
    method: request.method ?? '',
    startedAt: performance.now(),
    peer,
    ip: peers.caller(peer, request.headers['x-forwarded-for'] as string | undefined),
    trusted: peers.trusts(peer),
    dialect: 'problem',
    source: 'gateway',
    status: 0,
  }
}

/** The answer to a request that failed, and the note of it; `rateLimit` are the fields of the decision, where one was made. */
export function failed(exchange: Exchange, error: Refusal, rateLimit?: readonly string[]): Reply {
  exchange.error = error
  return errorReply(error, exchange.dialect, exchange.requestId, rateLimit)
}

const REQUEST_ID = /^[A-Za-z0-9._~+/=:@-]{1,128}$/

/** The caller's own `X-Request-Id` where it is well formed, else a new one. */
function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID()
}
