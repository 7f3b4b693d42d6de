import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Proof } from '../authenticate/proof/dpop.ts'
import type { ApiKeys } from '../authenticate/key/api-keys.ts'
import type { Authenticate } from '../authenticate/token/bearer.ts'
import type { BoundToken } from '../authenticate/token/challenge.ts'
import type { ResourceMetadata } from '../authenticate/token/resource-metadata.ts'
import type { Cors } from '../downstream/cors.ts'
import type { AskedRequest } from '../downstream/forward-auth.ts'
import type { BodyLength } from '../downstream/framing.ts'
import { type Head, readHead } from '../downstream/head.ts'
import { hidesCaller } from '../downstream/listener/proxied.ts'
import type { Peers } from '../downstream/peers.ts'
import type { PublicUrl } from '../downstream/public-url.ts'
import type { ErrorFormat, Reply } from '../downstream/reply.ts'
import type { RequestFields } from '../downstream/request-fields.ts'
import type { Params, Route, Router } from '../downstream/router.ts'
import type { Served, Target } from '../downstream/target.ts'
import type { Refusal } from '../errors.ts'
import type { Decision } from '../limit/decision.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { Quota } from '../limit/quota.ts'
import type { Guard } from '../par/form.ts'
import type { ShownCaller } from '../policy/counted-caller.ts'
import { type Caller, type Facts, NO_FACTS } from '../policy/facts.ts'
import type { Limit } from '../policy/limit.ts'
import type { ShowPath } from '../policy/shown-path.ts'
import { normalizeAddress } from '../runtime/address.ts'
import { memoize } from '../runtime/memoize.ts'
import type { UpstreamRequest } from '../upstream/request.ts'
import type { ResponseFields } from '../upstream/response-head.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Failures } from './failures.ts'
import type { Reported } from './rate-limit-fields.ts'
import { requestIdOf } from './request-id.ts'
import type { Reserves } from './reserves.ts'
import type { CallSettlement, Settling } from './settlement.ts'
import type { Usage } from './usage.ts'

/** The result of a phase: a refusal ends the request. */
export type Outcome = Refusal | undefined

export interface GatewayRoute extends Route {
  /** The limits that are charged for its requests. */
  readonly limits: readonly Limit[]
  /** Its upstream; undefined if the gateway itself responds. */
  readonly forward: Forward | undefined
  readonly errorFormat: ErrorFormat
  /** The fields of the log that its requests share, as JSON, with a comma before each. */
  readonly logText: string
  /** Returns the label of a client in its metrics, which callers cannot choose; undefined if they show no clients. */
  readonly clientLabel: ((client: string | undefined) => string) | undefined
  /** Undefined if pages of other origins have no access. */
  readonly cors: Cors | undefined
  /** The charges of its calls by what they use; undefined if they are not charged so. */
  readonly settling: Settling | undefined
  /** True if a limit counts by the address of the caller. */
  readonly countsByIp: boolean
  /** Decides about the fields of its requests, for limits and for the upstream. */
  readonly fields: RequestFields
  /** Returns a 400 if a path parameter that its limits count by is not of its kind. */
  refuseParams(facts: Pick<Facts, 'params'>): Outcome
  /**
   * Applies the route's limits to a request at an instant, in epoch milliseconds. Returns a 400 or
   * 403 if the request lacks a part of a key.
   */
  quotas(caller: Caller, facts: Facts, nowMs: number): readonly Quota[] | Refusal
  /** Names the callers whom the limits of some quotas count. */
  callersOf(quotas: readonly Quota[], caller: Caller, facts: Facts): readonly ShownCaller[]
  /**
   * Returns the quota whose allowance is shown if no call is charged: of the first live limit with
   * a key from these facts.
   */
  shownQuota(caller: Caller, facts: Facts): Quota | undefined
  /** Returns the quota that admits a proof once, to be charged with the quotas of its call. */
  proofQuota(proof: Proof, caller: Caller, facts: Facts): Quota
}

/** The dependencies of the gateway; a reload replaces all of them at once. */
export interface GatewayDeps extends Served {
  readonly match: Router<GatewayRoute>
  /** Returns the error format for a `Host`, not normalised, while no route is known. */
  errorFormatOf(host: string | undefined): ErrorFormat
  /** The URL of the page about errors, to which the type of a problem leads; undefined for the registered types. */
  readonly documentation: string | undefined
  readonly peers: Peers
  /** The field in which trusted proxies report the certificate of a TLS client, in lower case. */
  readonly certificateField: string
  /** The URL that callers use; undefined if the request and trusted proxies have it. */
  readonly publicUrl: PublicUrl | undefined
  /** Reads the request that a proxy asks about; undefined if the request itself is served. */
  readonly readAsked?: (request: IncomingMessage) => AskedRequest
  /** Decides about the fields of a request that a proxy asks about. */
  readonly askedFields: RequestFields
  readonly responseFields: ResponseFields
  /** Shortens the secrets in a path that may be logged; undefined if no path has any. */
  readonly showPath: ShowPath | undefined
  /** True if no path may be logged in full. */
  readonly hidesPath: boolean
  /** Applies to paths without a route. */
  readonly cors: Cors | undefined
  /** True if the gateway should get requests, as `/readyz` says. */
  isReady(): boolean
  /** Called for `X-Forwarded-For` of a peer that is not trusted, on a route that counts by the address. */
  onIgnoredForwardedFor(peer: string): void
  /** Called for a trusted proxy that reports several certificates of one TLS client. */
  onSeveralCertificates(peer: string): void
  /** Undefined if failures are not counted. */
  readonly failures: Failures | undefined
  readonly authenticate: Authenticate
  /** Undefined if callers have no API keys. */
  readonly keys: ApiKeys | undefined
  /** The metadata of the API; undefined without `tokens.resource`. */
  readonly resource: ResourceMetadata | undefined
  /** Checks of requests to the PAR and the authorisation endpoint; undefined without `par`. */
  readonly guards: Readonly<Record<'par' | 'authorization', Guard>> | undefined
  readonly limiter: Limiter
  /** The reserves of calls in progress. */
  readonly reserves: Reserves
  /** Returns the header fields of the limit that is reported, as text for `appendFields`. */
  rateLimitHeaders(reported: Reported, quotas: readonly Quota[]): string
  readonly usage: Pick<Usage, 'ofCaller' | 'read' | 'drop'>
  /** Starts the span of a request; returns it and the headers to forward. Undefined without tracing. */
  readonly trace: ((exchange: Exchange) => { span: unknown; headers: IncomingHttpHeaders }) | undefined
  /** Logs and counts a request; called once, at its end. */
  observe(exchange: Exchange): void
}

const NONE: readonly never[] = []

/** Normalising for each request: +2.0 us; `npm run bench:micro -- peer-address`. */
export const peerAddress = memoize(normalizeAddress, 10_000, 45)

/**
 * A request and its response. The phase named above a field writes it; the fields of the limit are
 * also written for a refusal that is not charged. Instants are `performance.now()` milliseconds.
 */
export class Exchange implements Facts {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** True while the caller waits for `100 Continue` (RFC 9110 section 10.1.1). */
  readonly expectsContinue: boolean
  readonly startedAt = performance.now()
  readonly requestId: string
  readonly method: string
  /** The address of the socket's peer, and the caller's address as far as trusted proxies report it. */
  readonly peer: string
  readonly ip: string
  readonly trusted: boolean
  /** The request that a proxy asks about; the gateway answers whether it may pass. */
  readonly asked: AskedRequest | undefined
  readonly head: Head
  /** Decides which pages may read the response: in general until the phase `match`, then as the route does. */
  cors: Cors | undefined
  /** The gateway's own response that is not a refusal; written after the phases. */
  reply: Reply | undefined = undefined

  // parse
  bodyLength: BodyLength = undefined
  /** The refusal of an ambiguous framing, which `screen` returns: until then, others come first. */
  misframed: Refusal | undefined = undefined
  target: Target | undefined = undefined
  /** The part of the path that may be logged, from the end on with its secrets shortened. */
  path: string | undefined = undefined

  // match
  route: GatewayRoute | undefined = undefined
  params: Params = NO_FACTS.params
  /** The first route that matches the path of a 405, for its error format. */
  nearest: GatewayRoute | undefined = undefined

  // authenticate
  caller: Caller | undefined = undefined
  quotas: readonly Quota[] = NONE
  /** A token bound to a key, whose proof is verified, and the quota that admits the proof once. */
  proved: { readonly token: BoundToken; readonly quota: Quota } | undefined = undefined
  /** A refusal from the limiter's cache, for which the proof was not verified. */
  cachedRefusal: Decision | undefined = undefined
  /** The unverified client_id of an authorisation request, pushed or not, for the log; at most 255 characters. */
  claimed: string | undefined = undefined
  /** The whole body of an authorisation request, pushed or not. */
  form: Buffer | undefined = undefined

  // limit
  limitAt: number | undefined = undefined
  decidedAt: number | undefined = undefined
  decision: Decision | undefined = undefined
  /** The header fields of the limit, as text for `appendFields`: of the decision, or of a reading. */
  rateLimitFields: string | undefined = undefined
  /** The reserves that the call was charged; undefined if its cost is fixed. */
  settlement: CallSettlement | undefined = undefined
  /** The callers whom the limits that were charged, or refused, count. */
  callers: readonly ShownCaller[] = NONE

  // forward
  forwardedAt: number | undefined = undefined
  /** The span of its trace, opaque to the gateway. */
  span: unknown = undefined
  /** The id of its trace if that is sampled; undefined without tracing. */
  sampledTraceId: string | undefined = undefined
  forwarded: UpstreamRequest | undefined = undefined
  endedAt = 0
  /** Set if the gateway itself answered with a refusal. */
  refusal: Refusal | undefined = undefined
  source: 'gateway' | 'upstream' = 'gateway'
  /** 0 if the caller disconnected before a response began. */
  status = 0
  /** Bytes of the body that was sent to the caller, or was about to be. */
  bytes = 0
  /** Set for a truncated response: by the caller (`left`), or by the upstream or the gateway (`cut`). */
  incomplete: 'left' | 'cut' | undefined = undefined
  /** The error for the log; undefined for a call over its limit. */
  error: Refusal | undefined = undefined

  constructor(response: ServerResponse, expectsContinue: boolean, deps: GatewayDeps) {
    const { req: request } = response
    this.request = request
    this.response = response
    this.expectsContinue = expectsContinue
    this.requestId = requestIdOf(request.headers[deps.responseFields.idField])
    this.asked = deps.readAsked?.(request)
    this.cors = this.asked === undefined ? deps.cors : undefined
    this.head = readHead(request.rawHeaders)
    this.method = this.asked?.method ?? request.method ?? ''
    this.peer = peerAddress(request.socket.remoteAddress ?? '')
    const isTrusted = deps.peers.trusts(this.peer) && !hidesCaller(request.socket)
    this.trusted = this.asked !== undefined || isTrusted
    const forwardedFor = request.headers['x-forwarded-for'] as string | undefined
    this.ip = deps.peers.caller(this.peer, forwardedFor, this.trusted)
  }

  /**
   * Returns the values of a field that limits read, one for each line; undefined if the upstream
   * gets none from this sender.
   */
  field(name: string): readonly string[] | undefined {
    return this.route?.fields.read(this.request.rawHeaders, name, this.trusted)
  }
}

/** An exchange after the phase `parse`, whose target is known. */
export type Parsed = Exchange & { readonly target: Target }

/** An exchange after the phase `match`, whose route is known. */
export type Routed = Parsed & { readonly route: GatewayRoute }

/** An exchange after the phase `authenticate`, whose caller is known. */
export type Identified = Routed & { readonly caller: Caller }

/** True for an exchange after the phase `authenticate`, also if that refused the caller whom it knows. */
export const isIdentified = (exchange: Exchange): exchange is Identified =>
  exchange.target !== undefined && exchange.route !== undefined && exchange.caller !== undefined
