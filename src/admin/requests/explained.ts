import type { CorsSettings } from '../../downstream/cors.ts'
import type { Params, Route } from '../../downstream/router.ts'
import type { Refusal } from '../../errors.ts'
import type { Limit } from '../../policy/limit.ts'
import type { RuleSource, upcomingChanges } from '../../policy/rule.ts'

/** The explanation of a request: what it would get, and why. The body of `/explain`. Instants are ISO 8601 in UTC. */
export interface Explained {
  readonly at: string
  readonly request: { readonly method: string; readonly host: string; readonly target: string }
  /** The canonical path, which is matched, counted and logged; null if the request has none. */
  readonly path: string | null
  /** The paths that servers could read, the canonical one first, with the route of each. Empty if there is one reading. */
  readonly readings: readonly { readonly path: string; readonly leadsTo: string }[]
  /** Refusal that needs no authentication, or null. That of a 405 lists the methods of the path in `allow`. */
  readonly refusal: (Pick<Refusal, 'status' | 'code' | 'message'> & { allow?: readonly string[] }) | null
  readonly route: ExplainedRoute | null
  readonly client: ExplainedClient | null
  /** The pages of other origins that may read the response; null if the gateway does not decide about them. */
  readonly cors: ExplainedCors | null
  /** Charged together or not at all. The headers of an admitted call report the first that is not a shadow. */
  readonly limits: readonly ExplainedLimit[]
  /** The routes before the matching one, or all routes if none matches. */
  readonly passedOver: readonly { readonly match: string; readonly because: string }[]
}

interface ExplainedRoute extends Pick<Route, 'match' | 'authenticate' | 'scope' | 'maxBody'> {
  /** The position in the configuration, counted from 0. */
  readonly index: number
  /** The team whose file has the route; absent for the main file. */
  readonly team?: string
  readonly params: Params
  /** Issuers of the accepted tokens or request objects. */
  readonly issuers: readonly string[]
  /** The field of API keys; null if the route accepts none. */
  readonly keyField: string | null
  readonly upstream: string | null
  /** The name and the labels in the metrics; null without them. */
  readonly name: string | null
  readonly labels: Readonly<Record<string, string>> | null
  readonly origins: readonly string[]
  readonly respond: NonNullable<Route['respond']> | null
  /** Milliseconds to the head of the response; null without an upstream. */
  readonly timeoutMs: number | null
}

interface ExplainedCors extends CorsSettings {
  /** True if the Origin of the question is allowed; null if it has none. */
  readonly allowed: boolean | null
}

interface ExplainedClient {
  readonly id: string
  readonly name: string | null
  readonly listed: boolean
  readonly plan: string | null
  /** The number of its API keys; null if the file has none. */
  readonly keys: number | null
  /** True if the PAR endpoint refuses unlisted clients. */
  readonly mustBeListed: boolean
  /** Requirements for its authorisation requests. Null: none. */
  readonly requestObjectSigningAlg: string | null
  readonly authentication: string | null
  readonly pushed: 'required' | null
}

/** The limit of a caller, and the rule that decides it. */
export interface DecidedLimit {
  readonly limit: number
  readonly decidedBy: RuleSource
  /** The place where the rule is written, and until when it holds. */
  readonly because: string
}

/** The fields of a limit that are shown as they are. */
type SameFields = 'name' | 'per' | 'shadow' | 'calendar' | 'counts' | 'cost' | 'actual'

/** A limit of the route: `counts` is the limit whose counter it bounds, `cost` the points that the call takes, with `actual` until it is known what it used. */
export interface ExplainedLimit extends Pick<Limit, SameFields>, DecidedLimit {
  /** The parts of the key that the question does not name. */
  readonly lacking: readonly string[]
  /** Absent of calls at once. */
  readonly windowMs?: number
  readonly missing?: 'skip'
  /** The condition, or the missing part, by which the limit is left out of the request; null if it applies. */
  readonly leftOut: string | null
  /** The key as it may be shown; null if a part is lacking. */
  readonly key: string | null
  /** The next change. */
  readonly next: ReturnType<typeof upcomingChanges>[number] | null
  /** Calls in progress, or calls or points that are counted, now; null if the store was not asked. */
  readonly used: number | null
  /** Points of `used` that calls in progress at this process hold; null if the store was not asked. */
  readonly reserved: number | null
  /** Calls or points that are left, without Redis at this gateway; null if the store was not asked. */
  readonly remaining: number | null
  /** The calls of `limit` that this gateway may admit while Redis is unavailable; null if all. */
  readonly part: number | null
}
