import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { SenderConstrainedToken } from '../authenticate/proof/confirmation.ts'
import type { Proof } from '../authenticate/proof/dpop.ts'
import type { Authenticate } from '../authenticate/token/bearer.ts'
import type { BodyLength, Head } from '../downstream/body.ts'
import type { ErrorFormat } from '../downstream/reply.ts'
import type { createRouter, Params } from '../downstream/router.ts'
import type { Target } from '../downstream/target.ts'
import { type Peers, normalizeAddress } from '../downstream/trusted-proxies.ts'
import { Failure, type Refusal } from '../errors.ts'
import type { Decision } from '../limit/decision.ts'
import type { Failures } from '../limit/failure-limit.ts'
import type { Caller, LimitedRoute, Quota } from '../limit/limit.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { RefuseParams } from '../limit/parameters.ts'
import type { Allowance } from '../limit/store.ts'
import { memoize } from '../runtime/memoize.ts'
import type { AuthorizationGuard } from '../par/authorization.ts'
import type { ParGuard } from '../par/guard.ts'
import type { UpstreamRequest } from '../upstream/request.ts'
import type { Forward } from '../upstream/upstream.ts'

/** A route with what serves it. */
export interface GatewayRoute extends LimitedRoute {
  /** Its upstream; undefined where the gateway itself responds. */
  readonly forward: Forward | undefined
  readonly errorFormat: ErrorFormat
  /** True if one of its limits is counted per user. */
  readonly needsUser: boolean
  /** Returns a 400 if a path parameter that its limits count by is not of its kind. */
  readonly refuseParams: RefuseParams
  /** Applies the route's limits to a caller, now. */
  quotas(caller: Caller, params: Params): readonly Quota[]
  /** Returns the quota whose allowance is shown where no call is charged: of the first live limit that these parts are enough for. */
  shownQuota(caller: Caller, params: Params): Quota | undefined
  /** Returns the quota that makes a proof pass once, to be charged with the quotas of its call. */
  proofQuota(proof: Proof, caller: Caller, quotas: readonly Quota[]): Quota
}

/** What the gateway depends on; a reload replaces all of it at once. */
export interface GatewayDeps {
  readonly match: ReturnType<typeof createRouter<GatewayRoute>>
  /** True for a host that is served by its name, and that absolute-form targets may name. */
  serves(host: string): boolean
  /** True if requests to other hosts are served, too. */
  readonly servesOthers: boolean
  /** Returns the error format of a `Host`, as it was sent, while no route is known. */
  errorFormatOf(host: string | undefined): ErrorFormat
  readonly peers: Peers
  /** Undefined where failures are not counted. */
  readonly failures: Failures | undefined
  readonly authenticate: Authenticate
  /** Check requests to the PAR and the authorisation endpoint; undefined without `par`. */
  readonly guards: { readonly par: ParGuard; readonly authorization: AuthorizationGuard } | undefined
  readonly limiter: Limiter
  /** Returns a decision's header fields, as text for `addFields`. */
  rateLimitHeaders(decision: Decision, quotas: readonly Quota[]): string
  /** Returns the body of `respond: limits`. */
  limitsOf(caller: Caller): Promise<object>
  /** Returns what a key has left, up to a second old; it costs no call. Rejects if the store cannot be asked. */
  readAllowance(quota: Quota): Promise<Allowance>
  /** Starts to trace a request, as it is forwarded: its `traceparent` becomes that of the gateway. Undefined where none is traced. */
  readonly trace: ((exchange: Exchange) => void) | undefined
  /** Logs and counts a request; called once, when it is over. */
  observe(exchange: Exchange): void
}

const NO_QUOTAS: readonly Quota[] = []
/** A well-formed `X-Request-Id`, which is kept. */
const REQUEST_ID = /^[A-Za-z0-9._~+/=:@-]{1,128}$/

/** To parse an IPv6 address takes longer than all else here. */
const peerAddress = memoize(normalizeAddress, 10_000, 45)

const IDS = 128
const ID_CHARS = 36
let ids = ''
let nextId = 0

/** Returns a new UUID, a slice of a text that holds many: `randomUUID` joins 20 pieces, and V8 copies them anew into each text with the UUID. */
function newId(): string {
  if (nextId === ids.length) {
    ids = Array.from({ length: IDS }, () => randomUUID()).join('')
    nextId = 0
  }
  return ids.slice(nextId, (nextId += ID_CHARS))
}

/** One request and what became of it. Each field is written by the phase it stands under; instants are `performance.now()` milliseconds. */
export class Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** True while the caller waits for `100 Continue` (RFC 9110 section 10.1.1). */
  readonly expectsContinue: boolean
  readonly startedAt: number
  readonly requestId: string
  readonly method: string
  /** The address of the socket's peer, and that of the caller as far as trusted proxies report it. */
  readonly peer: string
  readonly ip: string
  /** True if the peer is a trusted proxy. */
  readonly trusted: boolean

  // understand
  head: Head = { hosts: [], authorization: [], proofs: [] }
  bodyLength: BodyLength | Refusal = undefined
  target: Target | undefined = undefined
  /** As the log shows them: of a refused target, what holds no secret. */
  host: string | undefined = undefined
  path: string | undefined = undefined

  // match
  route: GatewayRoute | undefined = undefined
  params: Params = {}
  /** Of a path that is served, but not by this method: the route that comes nearest. */
  nearest: GatewayRoute | undefined = undefined

  // authenticate
  caller: Caller | undefined = undefined
  quotas: readonly Quota[] = NO_QUOTAS
  /** The token's binding to a key, and the quota that makes its proof pass once. */
  boundToken: SenderConstrainedToken | undefined = undefined
  proof: Quota | undefined = undefined
  /** The refusal that is known without the store, so that the proof was not looked at. */
  cachedRefusal: Decision | undefined = undefined
  /** The client that an authorisation request names, pushed or not, for the log: up to 255 characters, and not verified. */
  claimed: string | undefined = undefined
  /** The whole body of an authorisation request, pushed or not. */
  form: Buffer | undefined = undefined

  // limit
  limitAt: number | undefined = undefined
  decidedAt: number | undefined = undefined
  decision: Decision | undefined = undefined
  /** The decision's header fields, as text for `addFields`. */
  rateLimit: string | undefined = undefined

  // forward
  forwardedAt: number | undefined = undefined
  forwarded: Pick<UpstreamRequest, 'outcome' | 'error' | 'timedOut' | 'headAt'> | undefined = undefined

  // the end
  endedAt = 0
  /** Why the gateway itself answered. */
  refusal: Refusal | undefined = undefined
  source: 'gateway' | 'upstream' = 'gateway'
  /** 0 where the caller left before a response began. */
  status = 0
  /** Bytes of the body that was sent to the caller, or was about to be. */
  bytes = 0
  /** Who ended a response that is not whole: the caller (`left`), or the upstream or the gateway (`cut`). */
  incomplete: 'left' | 'cut' | undefined = undefined
  /** What went wrong, for the log; undefined for a call over its limit. */
  error: Refusal | undefined = undefined

  constructor(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean, peers: Peers) {
    this.request = request
    this.response = response
    this.expectsContinue = expectsContinue
    this.startedAt = performance.now()
    const given = request.headers['x-request-id']
    this.requestId = typeof given === 'string' && REQUEST_ID.test(given) ? given : newId()
    this.method = request.method ?? ''
    this.peer = peerAddress(request.socket.remoteAddress ?? '')
    this.ip = peers.caller(this.peer, request.headers['x-forwarded-for'] as string | undefined)
    this.trusted = peers.trusts(this.peer)
  }
}

/** Notes how the response ended, for log and metrics. */
export function recordOutcome(exchange: Exchange): void {
  const { response, forwarded, refusal } = exchange
  // Set by the server where it ended the response.
  const cut = response.errored instanceof Failure ? response.errored.refusal : undefined
  if (refusal === undefined && forwarded !== undefined && response.headersSent) exchange.source = 'upstream'
  exchange.status = refusal?.status ?? (response.headersSent ? response.statusCode : (cut?.status ?? 0))
  exchange.error = cut ?? forwarded?.error ?? (exchange.decision?.admitted === false ? undefined : refusal)
  if (cut !== undefined || forwarded?.outcome === 'cut') exchange.incomplete = 'cut'
  else if (!response.writableFinished) exchange.incomplete = 'left'
}
