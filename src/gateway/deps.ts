import type { Authenticate } from '../authenticate/token/bearer.ts'
import type { Proof } from '../authenticate/proof/dpop.ts'
import type { Exchange } from './exchange.ts'
import type { Failures } from '../limit/failure-limit.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Decision } from '../limit/decision.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { Caller, LimitedRoute, Quota } from '../limit/limit.ts'
import type { ParGuard } from '../par/guard.ts'
import type { RefuseParams } from '../limit/parameters.ts'
import type { Peers } from '../downstream/trusted-proxies.ts'
import type { ErrorFormat } from '../downstream/reply.ts'
import type { createRouter, Params } from '../downstream/router.ts'

/** A route with what serves it. */
export interface GatewayRoute extends LimitedRoute {
  /** Its upstream; undefined where the gateway itself responds. */
  readonly forward: Forward | undefined
  readonly errorFormat: ErrorFormat
  /** True if one of its limits is counted per user. */
  readonly needsUser: boolean
  /** 400 for path parameters by which its limits cannot count. */
  readonly refuseParams: RefuseParams
  /** Applies the route's limits to a caller, now. */
  quotas(caller: Caller, params: Params): readonly Quota[]
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
  /** The limit on failures of an address; undefined where failures are not counted. */
  readonly failures: Failures | undefined
  readonly authenticate: Authenticate
  /** Checks pushed authorisation requests; undefined without a PAR route. */
  readonly guard: ParGuard | undefined
  readonly limiter: Limiter
  /** Returns a decision's header fields as a flat list. */
  rateLimitHeaders(decision: Decision, quotas: readonly Quota[]): readonly string[]
  /** Returns the body of `respond: limits`. */
  limitsOf(caller: Caller): Promise<object>
  /** Logs and counts a request; called once, when it is over. */
  observe(exchange: Exchange): void
}
