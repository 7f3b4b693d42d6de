import type { Authenticate } from '../authenticate/token/bearer.ts'
import type { Caller } from '../limit/caller.ts'
import type { Proof } from '../authenticate/proof/dpop.ts'
import type { Exchange } from './exchange.ts'
import type { Failures } from '../limit/failure-limit.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Decision } from '../limit/decision.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { LimitedRoute, Quota } from '../limit/limit.ts'
import type { ParGuard } from '../par/guard.ts'
import type { RefuseParams } from '../limit/parameters.ts'
import type { Peers } from '../downstream/trusted-proxies.ts'
import type { Dialect } from '../downstream/reply.ts'
import type { Params, Router } from '../downstream/router.ts'

/** A route with the parts that serve it. */
export interface ServedRoute extends LimitedRoute {
  /** Where the requests go; undefined where the gateway itself responds. */
  readonly forward: Forward | undefined
  readonly dialect: Dialect
  /** Is one of its limits counted per user? */
  readonly needsUser: boolean
  /** Refuses path parameters by which its limits cannot count. */
  readonly refuseParams: RefuseParams
  /** The route's limits applied to a caller, now. */
  quotas(caller: Caller, params: Params): readonly Quota[]
  /** What makes a caller's proof pass once, to be charged beside the quotas of its call. */
  proofQuota(proof: Proof, caller: Caller, quotas: readonly Quota[]): Quota
}

/** What the gateway is made of; all of it is replaced at once by a reload. */
export interface Parts {
  readonly match: Router<ServedRoute>
  /** Is this a host that is served by its name, and that absolute-form targets may name? */
  serves(host: string): boolean
  /** Are other hosts served, too? */
  readonly servesOthers: boolean
  /** In whose words a `Host`, as it was sent, is answered while no route is known. */
  dialectOf(host: string | undefined): Dialect
  readonly peers: Peers
  /** Turns away the addresses that fail too often; undefined where failures are not counted. */
  readonly failures: Failures | undefined
  readonly authenticate: Authenticate
  /** Checks what is pushed to the PAR endpoint; undefined where no route leads there. */
  readonly guard: ParGuard | undefined
  readonly limiter: Limiter
  /** The fields that tell a caller of a decision, as a flat list. */
  rateLimitHeaders(decision: Decision, quotas: readonly Quota[]): readonly string[]
  /** What `respond: limits` answers a caller of its own limits. */
  limitsOf(caller: Caller): Promise<object>
  /** Told of every request once, when it is over. */
  observe(exchange: Exchange): void
}
